"""A stranger's end of TLS, for what a party finds where its coordinator should be."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress


@contextmanager
def server(home, *, plain=False):
    """Someone who has a certificate, or speaks no TLS, and takes connections; gives the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.crt", home / "server.key")
    with socket.create_server(("", 0)) as listening:

        def take():
            with suppress(OSError):
                while True:
                    end, _ = listening.accept()
                    with end, suppress(OSError):
                        if plain:
                            end.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                            end.recv(1000)
                        else:
                            context.wrap_socket(end, server_side=True).close()

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
