"""Every error bough raises on purpose, as one tree.

    BoughError
    ├── BadInput                  the user's file or option; exit status 2
    │   ├── NetworkError          a network that cannot be read or trusted
    │   │   └── UnsupportedOperator
    │   ├── PropertyError         a property that cannot be read or does not fit the network
    │   ├── CertificateError      a certificate that cannot be believed
    │   │   └── UnreadableCertificate
    │   └── OutputError           a result that cannot be written
    └── SolverFailure             a native solver gave no usable answer; the domain stays open

Messages say what, where, and what to do, in one sentence. Anything else that escapes is a defect of bough.
"""


class BoughError(Exception):
    """Base of every error that bough raises on purpose."""


class BadInput(BoughError):
    """Something the user handed in is wrong; nothing was decided."""


class NetworkError(BadInput):
    """The network cannot be read, or reading it gave another function than the file describes."""


class UnsupportedOperator(NetworkError):
    """The network uses an operator, or a form of it, that bough does not verify."""


class PropertyError(BadInput):
    """The property cannot be read, or does not fit the network."""


class CertificateError(BadInput):
    """A certificate does not prove what it says, or is damaged."""


class UnreadableCertificate(CertificateError):
    """A file is no certificate at all, or its bytes are not those that were written."""


class OutputError(BadInput):
    """A result file cannot be written where it was asked for."""


class SolverFailure(BoughError):
    """A native solver stopped without an answer that can be used."""
