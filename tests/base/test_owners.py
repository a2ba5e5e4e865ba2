"""Who could put something else in the place of a file: folders, links, groups."""

from __future__ import annotations

import grp
import json
import os
import pwd
from pathlib import Path

import pytest

from cockpit.base import owners, record
from cockpit.base.owners import NotOurs

ADA = 4242


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder of ours, below one that is."""
    made = tmp_path / "ours"
    made.mkdir(mode=0o700)
    owners.check(str(made))
    return made


def given(path: Path, uid: int = ADA) -> Path:
    """A file of another user."""
    os.chown(path, uid, uid, follow_symlinks=False)
    return path


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o755, 0o1755, 0o1777])
def test_a_folder_that_another_made_in_advance(base: Path, mode: int) -> None:
    above = base / "state"
    above.mkdir()
    given(above).chmod(mode)
    with pytest.raises(NotOurs, match=f"{above} belongs to uid {ADA}"):
        owners.make(str(above / "cockpit/runs"))
    assert not list(above.iterdir())


@pytest.mark.parametrize(("mode", "why"), [(0o777, r"anybody may write to .* \(mode 0777\)"), (0o1777, "")])
def test_where_anybody_may_write(base: Path, mode: int, why: str) -> None:
    base.chmod(mode)
    if not why:
        owners.make(str(base / "made"))  # as in /tmp: nobody else can move it
        return
    with pytest.raises(NotOurs, match=why):
        owners.make(str(base / "made"))


def test_a_volume_of_this_pod_is_its_own(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet makes an ``emptyDir`` with mode 0777; a folder below it is nobody else's by that."""
    base.chmod(0o777)
    monkeypatch.setenv(record.ENV_VOLUMES, json.dumps({str(base): 0}))
    owners.make(str(base / "made"))
    (base / "made").chmod(0o777)
    with pytest.raises(NotOurs, match=r"anybody may write to .*/made"):
        owners.check(str(base / "made"))
    monkeypatch.setenv(record.ENV_VOLUMES, json.dumps({str(base.parent): 0, f"{base}/": 0}))
    with pytest.raises(NotOurs, match="anybody may write to"):
        owners.check(str(base))


def test_a_group_is_accepted_by_the_setting_alone(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_group", lambda gid: "team")
    monkeypatch.setattr(owners, "_is_private", lambda gid: False)
    base.chmod(0o2775)
    with pytest.raises(NotOurs, match=r'group team may write to .*; .* set trusted_group = "team"'):
        owners.make(str(base / "made"))
    owners.make(str(base / "made"), ["team"])
    with pytest.raises(NotOurs):
        owners.check(str(base), ["others"])
    # Of a file the setting says nothing.
    assert "trusted_group" not in owners.others_in(str(base), base.stat())


@pytest.mark.root
def test_a_member_of_the_group_may_have_made_it(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_group", lambda gid: "team")
    monkeypatch.setattr(owners, "_is_in", lambda uid, group: (uid, group) == (ADA, "team"))
    given(base).chmod(0o2775)
    with pytest.raises(NotOurs, match=r'belongs to uid 4242; .* set trusted_group = "team"'):
        owners.check(str(base))
    owners.check(str(base), ["team"])
    given(base, ADA + 1)
    with pytest.raises(NotOurs):
        owners.check(str(base), ["team"])


@pytest.mark.parametrize(
    ("members", "others", "private"),
    [([], [], True), (["ada"], [], True), (["ada", "bob"], [], False), ([], ["bob"], False)],
)
def test_a_private_group_is_one_without_others(
    members: list[str], others: list[str], private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def user(name: str, uid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd((name, "", uid, 77, "", "/", ""))

    me = user("ada", os.geteuid())
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: me)
    monkeypatch.setattr(pwd, "getpwall", lambda: [me, *(user(name, ADA) for name in others)])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("team", "", gid, members)))
    monkeypatch.setattr(owners, "_is_private", owners._is_private.__wrapped__)  # nothing that was kept

    def who(group: int) -> str:
        return owners.others_in("/x", os.stat_result((0o100620, 0, 0, 1, os.geteuid(), group, 0, 0, 0, 0)))

    assert (who(77) == "") is private
    assert who(78)


@pytest.mark.root
def test_links_of_ours_are_followed_and_those_of_others_not(base: Path) -> None:
    (base / "there").mkdir()
    link = base / "link"
    link.symlink_to("there")
    owners.make(str(link / "made"))
    assert owners.resolved(f"{link}/made/../made") == str(base / "there/made")
    given(link)
    with pytest.raises(NotOurs, match="is a link that uid 4242 made"):
        owners.make(str(link / "more"))


def test_what_leads_nowhere(base: Path) -> None:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        owners.check(str(base / "a/c"))
    (base / "file").write_text("")
    with pytest.raises(FileExistsError):
        owners.make(str(base / "file/c"))


def test_folders_are_made_private(base: Path) -> None:
    owners.make(str(base / "one/two"))
    assert [(base / name).stat().st_mode & 0o777 for name in ("one", "one/two")] == [0o700, 0o700]
