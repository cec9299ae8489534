"""A loader of modules that keeps the text it has run, so that a kernel is lowered from it and not from a later edit."""

from importlib.machinery import SourceFileLoader
from importlib.util import decode_source
from types import CodeType


class KeepingLoader(SourceFileLoader):
    """Loads a module from its source alone: a ``.pyc`` is no proof, one of an edit within the second looks the same."""

    data: bytes = b""
    """The file as it was loaded."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file as it is now."""
        self.data = self.get_data(self.path)
        code: CodeType = self.source_to_code(self.data, self.path)
        return code

    def get_source(self, fullname: str) -> str:
        """The text that was compiled."""
        return decode_source(self.data)
