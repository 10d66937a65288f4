"""Words by which columns are recognised, by language: data, to be extended without reading code.

A name such as `patient_id` or `PatientID` is split into the words `patient` and `id`, in small
letters; these lists are asked for such words. Add a word to the line of its language, or a line for
another language. A list of *beginnings* or *endings* has parts of words, which are regular
expressions: `pat$` is a whole word, and `employ(?!er)` begins no word that `employer` does.
"""

from __future__ import annotations


def _words(**texts: str) -> frozenset[str]:
    """Return the words of all languages."""
    return frozenset(" ".join(texts.values()).split())


def _parts(**texts: str) -> str:
    """Return a regular expression of any of some parts of words."""
    return "|".join(" ".join(texts.values()).split())


def _phrases(**texts: tuple[str, ...]) -> str:
    """Return a regular expression of any of some phrases."""
    return "|".join(phrase for phrases in texts.values() for phrase in phrases)


# Values

MISSING = _words(
    marks="- -- ? .",
    english="na n/a #n/a nan <na> null nil none missing nd",
    german="k.a. n.v.",
    several="n.a. s.o.",
    databases=r"\n [null] <null> (null) {null} nat",
)
"""Texts that stand for a missing value, in small letters."""

MAYBE_MISSING = _words(marks=".", english="none missing nil nd nat")
"""Those of `MISSING` that may well be categories."""

NO_ANSWER = _phrases(
    english=(
        r"refus\w*",
        r"don.?t know",
        r"do not know",
        r"dk",
        r"no (?:answer|response|reply|data|opinion)",
        r"not (?:answered|applicable|asked|available|ascertained|stated|known|reported)",
        r"(?:un|not )known",
        r"inapplicable",
        r"missing",
        r"skipped",
        r"n\.?/?a\.?",
        r"dna",
        r"nk",
    ),
    german=(
        r"wei(?:ß|ss) nicht",
        r"keine angaben?",
        r"verweigert",
        r"trifft nicht zu",
        r"k\.? ?a\.?",
        r"entf(?:ällt|aellt)",
    ),
    french=("ne sait pas", "nsp", r"sans (?:réponse|objet)", "non réponse"),
    spanish=("no sabe", "no contesta", "ns/nc"),
    italian=("non so", "non risponde"),
    dutch=("weet niet", "geen antwoord"),
    swedish=("vet ej", "vet inte"),
    danish=("ved ikke",),
    polish=("nie wiem", "brak odpowiedzi"),
)
"""Phrases in the value labels of a survey for codes of an unknown answer."""

NO_AND_YES = (
    ("n", "y"),
    ("no", "yes"),
    ("f", "t"),
    ("false", "true"),
    ("nein", "ja"),  # German
    ("non", "oui"),  # French
    ("no", "sí"),  # Spanish
    ("no", "si"),  # Spanish and Italian, without the accent
    ("no", "sì"),  # Italian
    ("nee", "ja"),  # Dutch
    ("nej", "ja"),  # Danish and Swedish
    ("não", "sim"),  # Portuguese
    ("off", "on"),
    ("faux", "vrai"),  # French
    ("falsch", "wahr"),  # German
    ("falso", "vero"),  # Italian
    ("onwaar", "waar"),  # Dutch
    ("falso", "verdadero"),  # Spanish
    ("falso", "verdadeiro"),  # Portuguese
    ("n", "j"),  # German, Dutch and Nordic
    ("n", "o"),  # French
    ("n", "s"),  # Italian, Portuguese and Spanish
    ("nei", "ja"),  # Norwegian
    ("ei", "kyllä"),  # Finnish
    ("ei", "jah"),  # Estonian
    ("nie", "tak"),  # Polish
    ("ne", "ano"),  # Czech
    ("nie", "áno"),  # Slovak
    ("nem", "igen"),  # Hungarian
    ("ne", "da"),  # Croatian, Serbian and Slovene
    ("nu", "da"),  # Romanian
    ("hayır", "evet"),  # Turkish
    ("нет", "да"),  # Russian
    ("не", "да"),  # Bulgarian, Macedonian and Serbian
    ("όχι", "ναι"),  # Greek
    ("n", "t"),  # Polish
    ("否", "是"),  # Chinese
    ("いいえ", "はい"),  # Japanese
    ("아니오", "예"),  # Korean
    ("לא", "כן"),  # Hebrew
    ("لا", "نعم"),  # Arabic
)
"""The two words of a boolean column, that for false first, in small letters."""

UNITS = _words(
    symbols="kg g mg t cm mm km m ml dl l min h s oz lb lbs rpm bpm hp ps pct mio mrd tsd",
    english="year years yr yrs month months mo week weeks wk wks day days hour hours hr hrs",
    counts="percent point points pts unit units pcs pieces minute minutes second seconds sec",
    people="person persons people personen personnes personas persone",
    german="jahr jahre jahren j monat monate monaten woche wochen tag tage tagen",
    german_clock="stunde stunden std minuten sekunde sekunden sek",
    german_counts="stück stk prozent punkt punkte tablette tabletten tropfen einheiten mal",
    german_sizes="kilogramm gramm liter meter kilometer",
    money="euro euros franken kronen dollar dollars pounds fr kr kč ft tl",
)
"""Words that are a unit behind a number, in small letters, also where they have a capital."""

STREET_WORDS = _parts(
    english="st street ave avenue road rd lane drive dr blvd way court place",
    french="rue",
    italian="via",
    spanish="calle",
)
"""Words that an address has beside the name of a street."""

STREET_ENDINGS = _parts(german=r"stra(?:ß|ss)e str\. weg\b platz\b gasse\b allee\b")
"""How names of streets end."""


# Names of columns of identifiers, and of people

IDS = _words(
    english="id ids uuid guid idx index key identifier ssn mrn serial rowid login username plate "
    "vin imei barcode",
    german="kennzeichen",
)
"""Words for identifiers of anything."""

NUMBERED = _words(
    english="no nbr number num ref reference",
    german="nr nummer",
    french="numéro",
    italian="numero",
    spanish="número numero",
)
"""Words that number something where they come last: `case_no`."""

NUMBERED_FIRST = _words(
    english="id code",
    german="nr",
    french="numéro code",
    italian="numero",
    spanish="número numero código codigo",
)
"""Words that come before what they number: `numéro client`."""

PEOPLE = _parts(
    english="pat$ patient person cust(?!om$|oms|od) client member particip user employ(?!er|ment) "
    "staff caller assignee manager supervisor physician insured student pupil teacher donor "
    "resident citizen respond",
    german="kunde klient mitglied proband teilnehm benutz mitarb versichert schüler bürger",
    nordic="pasient",
    dutch="leerling",
    french="usager utilis assur élève étudiant",
    spanish="pa[cz]ient usuari alumn[oa] estudiant",
    italian="alunn",
)
"""Beginnings of words for people."""

CASES = _parts(
    english=r"pat(?:id|no)$ (?:pid|mrn|ssn)$ u?subj househ account case(?!load)",
    german=r"patnr$ kvnr$ kont[oa] fall",
    dutch=r"bsn$",
    french="sujet dossier",
)
"""Beginnings of words for what numbers people, or their cases."""

PERSON_ALONE = _words(
    english="patient subject participant respondent pupil", german="proband"
)
"""Words that alone, as the whole name of a column of numbers, number people."""

PUPILS = _parts(
    english="student pupil", german="schüler", french="élève", several="alu[mn]n"
)
"""Beginnings of words for those who learn what a subject is, which is then no person."""

ID_ENDINGS = _parts(
    english="id ids nbr num number hash mrn ssn",
    german="nr nummer",
    romance="n[uú]m[eé]ro (?<!alu[nm])no",
    dutch="bsn",
)
"""How words end that number people: `Kundennummer`, `patno`."""

SEVERAL_ENDINGS = _parts(english="s ship tion ance ity")
"""How words end that name several people, or nobody."""


# Names of columns of codes, counts and things

CODES = _words(
    english="code codes recode type class category cat group status state sex gender race region "
    "district zone ward dept department product method mode reason source kind branch store site "
    "room id country occupation industry workclass marital relationship ethnicity religion "
    "nationality diagnosis procedure centre center",
)
"""Words for codes of categories."""

CODE_SYSTEMS = _words(
    medicine="icd ops cpt hcpcs drg atc loinc snomed", statistics="nace isco isic naics"
)
"""Lists of codes by their own names: a number of one is no number."""

COUNTS = _words(
    english="num number count counts n age year years month months day days hour hours week weeks "
    "minute minutes second seconds time times amount total sum qty quantity size score rate rank "
    "percent pct length width height weight distance price cost timestamp epoch cumulative far "
    "odometer mileage reading uptime elapsed",
    german="zählerstand",
)
"""Words for counts and measures."""

HOW_MANY = _words(english="num number count n no")
"""Words that, at the beginning, count what follows: `num_codes`."""

THINGS = _words(
    english="article item sku line model version county fips drug hospital clinic company "
    "brand medication medicine substance test course cve job position disease condition club "
    "league city town school university college",
    german="artikel produkt gemeinde",
    french="commune produit",
)
"""Words for places, products and sorts of something, which are no people."""

PERIODS = _words(
    english="year quarter month week day weekday period term season",
    german="jahr quartal monat woche tag wochentag kw",
    french="année annee trimestre mois semaine jour",
    spanish="año trimestre mes semana día",
)
"""Words for parts of the calendar."""

TIME_ENDINGS = _parts(
    english="time clock hhmm",
    german="zeit",
    nordic="tid klokken",
    french="heure",
    italian="ora orario",
    spanish="hora",
    turkish="saat",
)
"""How words end that name times of day."""

INSTANTS = _words(english="unix epoch timestamp timestamps ts utc at")
"""Words for instants that are counted from 1970 on."""

DAY_ENDINGS = _parts(
    english="date data", german="datum", nordic="dato", spanish="fecha"
)
"""How words end that name days."""


MONTH_STARTS = _words(
    english="jan feb mar apr may jun jul aug sep oct nov dec",
    german="jän mär mrz mai okt dez",
    french="fév fev avr jui juin aoû aou déc",
    spanish="ene abr ago dic",
    italian="gen mag giu lug set ott",
    portuguese="out dez",
    dutch="mrt mei maa",
)
"""The first three letters of months."""

WEEKDAY_STARTS = _words(
    english="mon tue wed thu fri sat sun",
    german="die mit don fre sam son",
    french="lun mar mer jeu ven sam dim",
    spanish="mié mie jue vie sáb sab dom",
)
"""The first three letters of days of the week."""

CLOCK_WORDS = _words(
    marks="t z p a m h d e q w",
    english="am pm of at st nd rd th utc gmt est edt cst cdt mst mdt pst pdt bst",
    german="uhr um mo di mi do fr sa so kw mez mesz cet cest",
    romance="de del à",
    asian="年 月 日 時 时 分 秒 년 월 일 시 분 초 오전 오후",
)
"""Words and marks that stand in dates and times beside numbers."""


# Names of columns of personal data

PATIENT_FIELDS = {
    "2": "patient id",
    "2.1": "patient id",
    "3": "patient id",
    "3.1": "patient id",
    "4": "patient id",
    "4.1": "patient id",
    "5": "patient name",
    "5.1": "surname",
    "5.2": "forename",
    "6": "mother name",
    "7": "birth date",
    "9": "patient name",
    "11": "address",
    "11.1": "street",
    "11.5": "postcode",
    "13": "phone",
    "14": "phone",
    "18": "account number",
    "18.1": "account number",
    "19": "ssn",
}
"""Fields of HL7's segment PID, such as PID-3 and PID-5.1; others name nobody."""

SURNAMES = _words(
    english="surname lastname firstname fullname forename",
    german="nachname vorname",
    french="prénom prenom",
    spanish="apellido",
    italian="cognome",
)
"""Words for the names of people."""

NAME = _words(english="name", french="nom", spanish="nombre")
"""Words for the names of people, unless another word says of what."""

WHOSE = _words(
    english="full first last given family middle maiden contact doctor owner parent mother"
)
"""Words beside `name` that say that it is a person's."""

PHONES = _words(english="phone telephone tel mobile fax cell", german="telefon handy")
"""Words for phone numbers."""

STREETS = _words(
    english="address addr street",
    german="strasse straße adresse anschrift",
    french="rue",
)
"""Words for postal addresses."""

POSTCODES = _words(
    english="zip zipcode postcode postal",
    german="plz postleitzahl",
    nordic="postnummer postnr",
    polish="pocztowy",
    czech="psč",
)
"""Words for postcodes."""
