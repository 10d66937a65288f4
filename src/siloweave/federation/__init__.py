"""Federation: typed messages, sealed replies, sites and transports. It knows no method."""

from siloweave.federation.messages import Array, Masked, Public, Released, Reply, Request
from siloweave.federation.session import InProcess, Session, Traffic, Transport
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
