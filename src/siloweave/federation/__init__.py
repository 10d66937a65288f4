"""Federation: typed messages, sealed replies, sites and transports. It knows no method."""

from siloweave.federation.messages import Array, Masked, Public, Released, Reply, Request
from siloweave.federation.records import Traffic
from siloweave.federation.session import InProcess, Session, Transport
from siloweave.federation.site import FolderStore, MemoryStore, Site

__all__ = [
    "Array",
    "FolderStore",
    "InProcess",
    "Masked",
    "MemoryStore",
    "Public",
    "Released",
    "Reply",
    "Request",
    "Session",
    "Site",
    "Traffic",
    "Transport",
]
