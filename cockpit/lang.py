"""The language of the texts that explain a failure; everything else that is printed is English."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]

_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Where the locale of messages is set; the first that is not empty decides, as for every program."""

_CHINESE = {
    "no failure found": "没有发现失败",
    "failed first: {} ({})": "最先失败：{}（{}）",
    "stalled: {} ({})": "卡住：{}（{}）",
    "{} holds up the others": "其他 rank 都在等 {}",
    "sure": "确定",
    "likely": "很可能",
    "unsure": "不确定",
    "cause: {}": "原因：{}",
    "in: {}": "位置：{}",
    "ended: {}": "退出：{}",
    "means: {}": "含义：{}",
    "next: {}": "接下来：{}",
    "means": "含义",
    "next": "接下来",
    "failed as a consequence: {}": "受牵连：{}",
    "waiting for it: {}": "在等它：{}",
    "failed after it: {}": "随后失败：{}",
    "also seen ({}): {}": "另外发现（{}）：{}",
    "run {}": "训练 {}",
    "launcher: {}": "启动器：{}",
    "{} line, {}": "{} 行，{}",
    "{} lines, {}": "{} 行，{}",
    "about {}": "约 {}",
    "{}: {}": "{}：{}",
    "{}; {}": "{}；{}",
    "{} on {}": "{}（{}）",
    "and {} more files; all: {}": "还有 {} 个文件，合计 {}",
    "{} rank ({})": "{} 个 rank（{}）",
    "{} ranks ({})": "{} 个 rank（{}）",
    "{} on {} node": "{}，{} 个节点",
    "{} on {} nodes": "{}，{} 个节点",
    "{} others: {}": "其余 {} 个：{}",
    "no line of its own": "自己没有输出",
    "lines that name nobody": "没有标明来源的行",
    "a process that no line names": "没有标明来源的进程",
    "{} failed": "{}",
    "{} exited 0 while the others continued": "{} 以 0 退出，其他 rank 还在运行",
    "{} did not join the others": "其他 rank 都在等 {}，但没有等到",
    "{} is gone; its output ends with an error": "{} 的进程已不在，输出以错误结尾",
    "which rank failed first is unknown: {} waited for others": "无法判断谁最先失败：{} 都在等别的 rank",
    "exited {}": "退出码 {}",
    "killed by {}": "被 {} 杀死",
    "died unexpectedly": "意外退出",
    "lost": "失联",
    "lost: {}": "失联：{}",
    "gone": "进程已不在",
    "damaged: only the beginning could be unpacked ({})": "文件损坏，只能解压开头部分（{}）",
    "stopped at {} bytes: {} compressed bytes expand too far for a log": (
        "只读了 {} 字节：{} 字节的压缩数据解压后过大，不像日志"
    ),
    "cut off: its end is missing, and only the rest could be unpacked": "文件不完整，只能解压到断开处",
    "last good run of this command: {}; {}": "同一命令上一次成功的训练：{}；{}",
    "RULE": "规则",
    "MEANING": "含义",
    "SOURCE": "来源",
}
"""What stands around the texts of rules: templates, with as many places."""


def word(english: str, lang: str) -> str:
    """A word, or a template, in a language: ``en`` or ``zh``."""
    return _CHINESE[english] if lang == "zh" else english


class Phrase(NamedTuple):
    """What can be said in each language.

    :param words: a template, see :func:`word`; empty: there is nothing to say
    """

    words: str = ""
    values: tuple[object, ...] = ()

    def text(self, lang: str = "en") -> str:
        """``exited 3``, ``killed by SIGKILL``."""
        return word(self.words, lang).format(*self.values) if self.words else ""


UNSAID = Phrase()


def language(setting: str, environ: Mapping[str, str]) -> Language:
    """The language to explain in.

    :param setting: ``lang`` of the settings; empty: that of the locale
    """
    named = setting or next(filter(None, map(environ.get, _LOCALE)), "")
    return "zh" if named.lower().startswith("zh") else "en"
