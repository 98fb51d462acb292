"""Finds where a name of the library is described."""

import re


class Names:
    """Addresses are those from the top of the site."""

    def __init__(self):
        self.types, self.functions, self.members = {}, {}, {}

    def add(self, entity, address):
        outer, _, name = entity.qualified.rpartition("::")
        if entity.kind in ("class", "enum", "concept", "type"):
            self.types.setdefault(name, address)
        if outer and outer[0].isupper():
            self.members.setdefault((outer.rsplit("::", 1)[-1], name), address)
        elif entity.kind not in ("class", "enum", "concept", "type"):
            self.functions.setdefault(name, address)

    def type(self, name):
        return self.types.get(name) if name[:1].isupper() else None

    def free(self, name):
        return self.functions.get(name) or self.types.get(name)

    def member(self, outer, name):
        return self.members.get((outer, name))

    def mentioned(self, text, near=None):
        """Of a name in a sentence, such as `SaveOptions::async`, `accelerator.backward(loss)` or `gather()`."""
        found = re.fullmatch(r"(?:accelerate::)?(?:ops::)?((?:\w+(?:::|\.))?)(\w+)(\(.*\))?", text.strip())
        if not found:
            return None
        outer, name, is_call = found.group(1).rstrip(":."), found.group(2), found.group(3) is not None
        if outer:
            outer = "Accelerator" if outer == "accelerator" else outer
            if outer[0].isupper():
                return self.member(outer, name) or (self.type(outer) if name.startswith("k") else None)
            return None
        if name[0].isupper():
            return self.type(name)
        if not is_call and ("_" not in name or len(name) < 8):
            return None
        return (near and self.member(near, name)) or self.member("Accelerator", name) or self.functions.get(name)
