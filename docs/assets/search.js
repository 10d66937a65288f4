// Browsers start no worker from a file. Where the site is opened from a folder, search runs in a hidden frame.
if (location.protocol === "file:") {
  // As between threads: a copy, and not before the sender is done.
  const later = (data, deliver) => {
    const message = { data: structuredClone(data) };
    setTimeout(() => deliver(message));
  };
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inner = this.frame.contentWindow;
      this.inner.postMessage = (data) => later(data, (message) => this.onmessage?.(message));
      const script = this.inner.document.createElement("script");
      script.src = new URL(url, location).href;
      this.ready = new Promise((loaded, failed) => {
        script.onload = loaded;
        script.onerror = failed;
      });
      this.ready.catch((error) => this.onerror?.(error));
      this.inner.document.body.append(script);
    }
    postMessage(data) {
      this.ready.then(() => later(data, (message) => this.inner.onmessage(message)));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
