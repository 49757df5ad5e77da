class ToolError(Exception):
    pass


class BadName(ToolError):
    pass


class BadName(ToolError):
    pass


class BadTag(ToolError):
    pass


class BadMode(ToolError):
    pass
