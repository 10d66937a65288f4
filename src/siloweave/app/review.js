"use strict";
const byId = (id) => document.getElementById(id);
const review = byId("review");
const message = byId("message");
const columns = [...document.querySelectorAll("section[data-name]")];
const rules = [...document.querySelectorAll("section.rule")];
let isChanged = false;
let isSaving = false;
let lastSection = null;

// A kind has some of the facts: the fields of all others are hidden.
function showFields(section) {
  const kind = byId(section.id + "-kind").value;
  for (const field of section.querySelectorAll("[data-kinds]"))
    field.hidden = !field.dataset.kinds.split(" ").includes(kind);
}

function formOf(section) {
  const form = {};
  for (const field of section.querySelectorAll("[data-field]"))
    form[field.dataset.field] = field.type === "checkbox" ? field.checked : field.value;
  for (const bound of section.querySelectorAll("[data-bound]"))
    (form[bound.dataset.bound] ||= []).push(bound.value);
  return form;
}

function say(text, tone, items = []) {
  message.className = "message " + tone;
  message.textContent = text;
  if (!items.length) return;
  const list = document.createElement("ul");
  for (const item of items) {
    const entry = document.createElement("li");
    entry.append(item);
    list.append(entry);
  }
  message.append(list);
}

function clearProblems() {
  for (const place of document.querySelectorAll(".problem")) place.textContent = "";
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

// Beside its field; beside the column or constraint where it has none.
function showProblem(problem) {
  if (problem.field === "further") {
    byId("further-problem").textContent = problem.message;
    byId("further").setAttribute("aria-invalid", "true");
    return byId("further");
  }
  const id = problem.column !== null ? "c" + problem.column
    : problem.constraint !== null ? "r" + problem.constraint : null;
  if (id === null) return null;
  const name = problem.constraint !== null ? "is_kept" : problem.field;
  const field = byId(id + "-" + name);
  const place = byId(id + "-" + name + "-problem") || byId(id + "-problem");
  place.textContent = problem.message;
  if (field === null) return byId(id + "-kind");
  const details = field.closest("details");
  if (details) details.open = true;
  field.setAttribute("aria-invalid", "true");
  return field;
}

// In the middle of the page, as the bar hides what is at its bottom.
function goTo(field) {
  field.focus({ preventScroll: true });
  field.scrollIntoView({ block: "center", behavior: "instant" });
}

// What a field is called: its column or constraint, and its label.
function nameOf(field) {
  const section = field.closest("section");
  const label = field.labels.length ? field.labels[0].firstChild.textContent.trim() : "";
  const name = label && label.charAt(0).toLowerCase() + label.slice(1);
  if (section === null) return label;
  return section.dataset.words || section.dataset.name + ", " + name;
}

function linkTo(field) {
  const link = document.createElement("a");
  link.href = "#" + field.id;
  link.textContent = nameOf(field);
  link.addEventListener("click", (event) => { event.preventDefault(); goTo(field); });
  return link;
}

async function save() {
  if (isSaving) return;
  isSaving = true;
  byId("save").disabled = true;
  clearProblems();
  say("Saving …", "");
  const form = {
    version: review.dataset.version,
    columns: columns.map((section) => ({ name: section.dataset.name, ...formOf(section) })),
    constraints: rules.map(formOf),
    further: byId("further").value,
  };
  try {
    const answer = await fetch("save", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(form),
    });
    const isJson = (answer.headers.get("Content-Type") || "").startsWith("application/json");
    if (!isJson) throw new Error((await answer.text()).trim());
    finish(await answer.json());
  } catch (error) {
    const isGone = error instanceof TypeError;
    say(isGone ? "Nothing was saved: siloweave review does not run any more. Start it again, and leave this page open: what you typed is still here."
      : "Nothing was saved: " + error.message, "bad");
  }
  isSaving = false;
  byId("save").disabled = false;
}

function finish(result) {
  if (result.outcome === "saved") {
    isChanged = false;
    sessionStorage.setItem("saved", JSON.stringify([result.message, result.beyond]));
    location.reload();
    return;
  }
  if (result.outcome === "unchanged") { isChanged = false; say(result.message, ""); return; }
  if (result.outcome === "beside") isChanged = false;
  const elsewhere = result.problems.filter((problem) => problem.column === null && problem.constraint === null && problem.field !== "further");
  const items = [...elsewhere.map((problem) => problem.message), ...result.differences];
  const fields = result.problems.map(showProblem).filter((field) => field !== null);
  if (fields.length === 1 && !items.length) {
    say("Nothing was saved: ", "bad");
    message.append(linkTo(fields[0]));
  } else say(result.message, "bad", [...fields.map(linkTo), ...items]);
  if (fields.length) goTo(fields[0]); else message.focus();
}

function goToNext() {
  const open = [...document.querySelectorAll("[data-field=is_known]")].filter((tick) => !tick.checked);
  if (!open.length) { say("No column is left whose facts are from rows.", "good"); return; }
  const after = (tick) => lastSection && !lastSection.contains(tick)
    && (lastSection.compareDocumentPosition(tick) & Node.DOCUMENT_POSITION_FOLLOWING);
  const next = open.find(after) || open[0];
  next.focus();
  next.closest("section").scrollIntoView({ block: "start" });
}

function count() {
  let left = 0;
  for (const section of columns) {
    const tick = byId(section.id + "-is_known");
    if (tick && !tick.checked) left += 1;
  }
  byId("count").textContent = left;
}

document.addEventListener("input", (event) => {
  isChanged = true;
  const field = event.target;
  if (field.dataset.field === "kind") showFields(field.closest("section"));
  if (field.dataset.field === "is_known") {
    field.parentElement.classList.toggle("ticked", field.checked);
    count();
  }
});
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
    event.preventDefault();
    save();
  }
});
window.addEventListener("beforeunload", (event) => { if (isChanged) event.preventDefault(); });
// The last section that had the focus is where "next" begins.
document.addEventListener("focusin", (event) => {
  lastSection = event.target.closest("section") || lastSection;
});
byId("save").addEventListener("click", save);
byId("next").addEventListener("click", goToNext);
columns.forEach(showFields);
const saved = sessionStorage.getItem("saved");
if (saved !== null) {
  sessionStorage.removeItem("saved");
  const [text, beyond] = JSON.parse(saved);
  say(text, "good", beyond);
  message.focus({ preventScroll: true });
}
