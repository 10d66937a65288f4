"""What this package takes of Flower: the list to go through when Flower's version is raised.

Flower's public interface is its applications (`flwr.app`, `flwr.clientapp`). It has none for a node
or a SuperLink that runs no program, so all else here may change in any release: hence the exact pin
of the extra `flower`. tests/federation/test_flower_parts.py holds the list against the imports and
against the installed version, and names what is gone before any process starts.
"""

from __future__ import annotations

from typing import NamedTuple


class FlowerPart(NamedTuple):
    """A name of Flower's that this package uses.

    Attributes:
        module: Where it is.
        names: What is used of it; a dot leads to an attribute.
        purpose: What for.
        test: Which test fails first if it behaves otherwise, of tests/federation/test_engine.py if
            no file is named.
        is_public: Whether Flower documents it for others.
    """

    module: str
    names: tuple[str, ...]
    purpose: str
    test: str
    is_public: bool = False


_CROSS = "test_questions_cross_and_their_cost_is_shown"
_KNOWN = "test_an_unknown_node_is_not_let_in_and_says_so"
_OTHERS = "test_what_others_do_at_their_superlink_does_not_disturb_a_study"
_SECRET = "test_a_secret_for_tasks_is_asked_for_and_is_enough"  # noqa: S105 - a test's name
_STOCK = "tests/app/test_node_elsewhere.py::test_a_study_with_flowers_own_superlink_and_supernode"

IMPORTED = (
    # Messages, as applications see them, and as they travel: an object and its parts by digest.
    FlowerPart(
        "flwr.app",
        ("ConfigRecord", "Message", "RecordDict"),
        "messages",
        _CROSS,
        is_public=True,
    ),
    FlowerPart(
        "flwr.clientapp",
        ("ClientApp",),
        "a stock SuperNode's application",
        _STOCK,
        True,
    ),
    FlowerPart(
        "flwr.app.message",
        ("remove_content_from_message",),
        "announces a message",
        _CROSS,
    ),
    FlowerPart(
        "flwr.common.serde",
        ("message_to_proto", "run_from_proto"),
        "the same, on the wire",
        _CROSS,
    ),
    FlowerPart(
        "flwr.supercore.inflatable.inflatable_object",
        ("get_all_nested_objects", "get_object_tree", "no_object_id_recompute"),
        "parts of a message",
        _CROSS,
    ),
    FlowerPart(
        "flwr.supercore.inflatable.inflatable_protobuf_utils",
        (
            "make_confirm_message_received_fn_protobuf",
            "make_pull_object_fn_protobuf",
            "make_push_object_fn_protobuf",
        ),
        "their way over the wire",
        _CROSS,
    ),
    FlowerPart(
        "flwr.supercore.inflatable.inflatable_utils",
        (
            "ObjectPullError",
            "ObjectPushError",
            "pull_and_inflate_object_from_tree",
            "push_objects",
        ),
        "the same; and that a sender was killed",
        "test_a_node_that_is_killed_comes_back",
    ),
    # The wire itself.
    FlowerPart(
        "flwr.proto.control_pb2",
        (
            *("ListNodesRequest", "ListRunsRequest", "RegisterNodeRequest"),
            *("StartRunRequest", "StopRunRequest"),
        ),
        "orders: admit nodes, start and stop the study's run",
        _OTHERS,
    ),
    FlowerPart("flwr.proto.fab_pb2", ("Fab",), "the bundle of a run", _STOCK),
    FlowerPart(
        "flwr.proto.fleet_pb2",
        (
            *("ActivateNodeRequest", "DeactivateNodeRequest"),
            *("PullMessagesRequest", "PushMessagesRequest"),
            *("RegisterNodeFleetRequest", "UnregisterNodeFleetRequest"),
        ),
        "what a node says",
        _KNOWN,
    ),
    FlowerPart(
        "flwr.proto.heartbeat_pb2",
        ("SendNodeHeartbeatRequest",),
        "that a node lives",
        _CROSS,
    ),
    FlowerPart("flwr.proto.node_pb2", ("Node",), "a node's number", _CROSS),
    FlowerPart(
        "flwr.proto.runtime_pb2",
        ("AcquireTaskRequest", "PullTaskInputRequest"),
        "takes the run's task in place of an executor",
        "test_a_task_that_others_take_is_named",
    ),
    # Clients of its three protocols, and what they show.
    FlowerPart(
        "flwr.supercore.control", ("ControlHttpClient",), "gives orders", _CROSS
    ),
    FlowerPart(
        "flwr.supercore.runtime", ("RuntimeHttpClient",), "takes the task", _CROSS
    ),
    FlowerPart(
        "flwr.supernode.fleet_http_client", ("FleetHttpClient",), "is a node", _CROSS
    ),
    FlowerPart(
        "flwr.supernode.node_auth_http_interceptor",
        ("NodeAuthHttpInterceptor",),
        "signs a node's requests",
        "test_a_clock_counts_only_if_the_node_has_signed_it",
    ),
    FlowerPart(
        "flwr.supercore.interceptors",
        (
            *("RuntimeTokenHttpInterceptor", "RuntimeVersionHttpInterceptor"),
            "SuperExecAuthHttpInterceptor",
        ),
        "shows token, version, and the secret of a joined SuperLink",
        _SECRET,
    ),
    FlowerPart(
        "flwr.supercore.heartbeat",
        ("HeartbeatSender", "make_task_heartbeat_fn_http"),
        "that the task is worked on",
        "tests/synthesizers/test_engine_runs.py, by its length",
    ),
    FlowerPart(
        "flwr.superlink.grid",
        ("HttpGrid", "HttpGrid._client"),
        "pushes and pulls",
        _CROSS,
    ),
    FlowerPart(
        "flwr.supercore.task_identity", ("TaskIdentity",), "whose message it is", _CROSS
    ),
    # The SuperLink, and the bundle that it wants.
    FlowerPart(
        "flwr.cli.build", ("build_fab_from_files",), "makes the bundle of a run", _STOCK
    ),
    FlowerPart(
        "flwr.superlink.main", ("create_app",), "the SuperLink's application", _CROSS
    ),
    FlowerPart(
        "flwr.superlink.cli.flower_superlink",
        ("SuperLinkLifespan", "_parse_superlink_lifespan_config"),
        "its settings, which have no other door",
        "test_a_stranger_can_give_the_superlink_no_order",
    ),
    FlowerPart(
        "flwr.supercore.corestate",
        ("in_memory_corestate.OBJECT_PUSH_SESSION_TTL_SECONDS",),
        "set to 30 s: when a half-sent message is given up",
        "test_a_node_that_is_killed_comes_back",
    ),
)
"""What is imported, all of it in federation/ and nowhere else."""

RELIED_ON = {
    "Message.metadata.__dict__['_message_id']": "set, as Flower's own node does",
    "application.user_middleware": "layers of the SuperLink that are left out, by their names",
    "config.enable_supernode_auth": "set, since the command line refuses it without TLS",
    "/v1/fleet/, /v1/fleet/pull-messages": "requests of nodes, which strangers may send",
    "/openapi.json": "a joined SuperLink's version",
    "flwr-public-key, flwr-signature, flwr-timestamp": "headers that a node signs; ECDSA, SHA-256",
    "status 401, 412": "a wrong clock or signature; an unknown node",
}
"""What is not imported and could change all the same; test_engine.py has a test of each."""
