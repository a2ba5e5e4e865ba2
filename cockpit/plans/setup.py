"""The shell that runs a person's ``--setup``, when a node is asked what it has and when it launches."""

from __future__ import annotations

from cockpit.base.shell import fill, verbatim

# Not a login shell: that may replace PATH, and run what a person's own files start on a terminal.
_PROFILE = """\
# As in a login shell: `module` is defined there.
for cockpit_file in /etc/profile.d/*.sh; do
  [ ! -r "$cockpit_file" ] || . "$cockpit_file"
done"""

_CONDA = """\
# `conda activate` is a function, which many .bashrc define on terminals only.
if [ "$(type -t conda)" != function ]; then
  for cockpit_file in "$(type -P conda)" "$CONDA_EXE" {}; do
    cockpit_file=${{cockpit_file%/*/conda}}/etc/profile.d/conda.sh
    [ ! -r "$cockpit_file" ] || {{ . "$cockpit_file"; break; }}
  done
fi"""


def path(folder: str) -> str:
    """Shell that puts a folder first on PATH."""
    return fill('export PATH={}:"$PATH"', folder)


def text(setup: str, folder: str, conda: str) -> str:
    """Shell that runs a setup where ``module`` and ``conda activate`` work; it ends with the setup's status.

    :param setup: what the person wrote; blank: nothing, and then the text is empty
    :param folder: of the active environment's programs, first on PATH when the setup begins; empty: none
    :param conda: path of this machine's conda: the node's may be there too; empty: not known
    """
    if not setup.strip():
        return ""
    lines = [_PROFILE]
    if folder:
        lines.append(path(folder))
    if "conda" in setup:
        lines.append(fill(_CONDA, conda))
    return "\n".join([*lines, verbatim(setup.rstrip("\n"))])
