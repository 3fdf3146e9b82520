"""Why a call could not do what it was asked for."""


class Error(Exception):
    """The base of all errors of peers; each says in words what happened."""


class Rails(Error):
    """An endpoint cannot be opened, or reached."""


class Gone(Error):
    """A member is gone, and the run keeps no states to go on from without it."""


class Breach(Error):
    """A member said what it had no reason to: it sends another length than is received, say."""


class Changed(Error):
    """Who takes part has changed: ``Peers.change`` says what that means here."""


class Out(Error):
    """The others have gone on without this one; it can join again."""


class Refused(Error):
    """The run that was to be joined does not take this peer."""


class Silent(Error):
    """Nothing came for as long as was to be waited (``patience``)."""


class Use(Error, ValueError):
    """A call was made that cannot be carried out; it says what to do."""
