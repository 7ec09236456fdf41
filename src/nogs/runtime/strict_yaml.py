"""Strict YAML of plain values: what PyYAML accepts silently, or fails on with its own exception, is refused."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["parse"]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader without dates, aliases (which can expand to any size) and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise _problem("a value by its alias; write it out", self.peek_event())
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # !!float abc, 5,000 digits
            raise _problem(f"this can't be read as {node.tag.rpartition(':')[2]}", node) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            mark = (key.tag, str(key.value))
            if mark in seen:
                raise _problem(f"the key {str(key.value)[:60]!r} a second time", key)
            seen.add(mark)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _problem(what: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=at.start_mark)


def parse(text: str) -> Any:
    """The value of a YAML text; raises yaml.YAMLError if it is invalid."""
    try:
        return yaml.load(text, _Loader)
    except RecursionError as error:
        raise yaml.YAMLError("brackets are nested too deeply") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # PyYAML's own errors on malformed text
        raise yaml.YAMLError("a value can't be read") from error
