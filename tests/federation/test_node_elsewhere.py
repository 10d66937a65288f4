"""A party that starts no node: its socket, the node's keys, and the application of a SuperNode."""

import subprocess
from types import SimpleNamespace

import pytest

from siloweave.errors import InputError, StudyError, WireError
from siloweave.federation import certificates, clientapp, engine, local
from tests.federation.engines import body_in, echo, envelope, provisioned, seals_of


def asked(path, name="lab", body=b"x"):
    """The answer of a party at a socket, as the coordinator opens it."""
    office = seals_of("coordinator")
    sealed = office.ask(name, envelope(name, body))
    nonce = office.checked(sealed, "coordinator", name).nonce
    return office.open(local.ask(path, sealed, 10.0), name, nonce)


def test_a_party_answers_at_a_socket_without_flower_or_a_process(tmp_path):
    path = tmp_path / "shared" / "party.sock"
    with engine.awaiting_node(seals_of("lab"), echo, path) as server, server:
        assert body_in(asked(path, body=b"first").envelope()) == b"first"
        with pytest.raises(WireError, match="was refused"):
            local.ask(path, b"no frame", 10.0)
        assert body_in(asked(path, body=b"second").envelope()) == b"second"
    assert not path.exists()


def test_a_party_that_refuses_the_study_ends_once_it_has_said_so(tmp_path):
    def reply(question):
        raise StudyError("its policy does not allow this study")

    path = tmp_path / "shared" / "party.sock"
    with (
        pytest.raises(StudyError, match="its policy"),
        engine.awaiting_node(seals_of("lab"), reply, path) as server,
        server,
        pytest.raises(StudyError, match="its policy"),
    ):
        asked(path).envelope()


def ssh_key(path, *kind):
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", str(path), *kind], check=True)
    return path.with_suffix(".pub")


def test_a_node_may_have_a_key_of_openssh_that_the_office_never_sees(tmp_path):
    public = ssh_key(tmp_path / "node", "-t", "ecdsa", "-b", "384")
    word = certificates.public_node_key(public)
    own = certificates.private_key(tmp_path / "node").public_key()
    assert certificates.node_key_in(word) == own
    assert certificates.node_key(tmp_path / "node") == word
    provisioned(tmp_path, nodes={"lab": public})
    assert engine._nodes_in(tmp_path / "office" / "engine" / "nodes.json")["lab"] == word
    assert not (tmp_path / "lab" / "engine" / "node.key").exists()
    assert (tmp_path / "clinic" / "engine" / "node.key").exists()


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (("-t", "ed25519"), "is no key of the curve P-384; make one with: ssh-keygen -t ecdsa"),
        (("-t", "ecdsa", "-b", "256"), "is no key of the curve P-384"),
    ],
)
def test_a_node_key_of_another_kind_is_refused(kind, match, tmp_path):
    with pytest.raises(InputError, match=match):
        certificates.public_node_key(ssh_key(tmp_path / "node", *kind))


def test_a_file_that_is_no_key_is_refused(tmp_path):
    (tmp_path / "node.pub").write_text("ecdsa-sha2-nistp384 AAAA")
    for name in ("node.pub", "none.pub"):
        with pytest.raises(InputError, match=rf"{name}: is no public key of OpenSSH"):
            certificates.public_node_key(tmp_path / name)


@pytest.mark.parametrize("config", [{}, {"siloweave-socket": 7}])
def test_a_supernode_that_names_no_socket_is_told_how(config):
    with pytest.raises(InputError, match=r"names no socket; start it with --node-config"):
        clientapp.carry(None, SimpleNamespace(node_config=config))
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = clientapp.other


def test_a_node_without_a_key_is_told_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "need_flower", lambda: None)
    with pytest.raises(InputError, match=r"node\.key: is not there. Give the node the folder"):
        engine.carrying_to(tmp_path / "party.sock", tmp_path, "127.0.0.1:9092")
    assert list(tmp_path.iterdir()) == []
