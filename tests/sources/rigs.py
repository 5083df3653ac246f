"""Every kind of source that the conformance suite runs on."""

from tests.sources.rig import SourceRig
from tests.sources.rig_activemq import ActiveMqRig
from tests.sources.rig_embedded import EmbeddedRig
from tests.sources.rig_nats import NatsRig
from tests.sources.rig_sqs import MotoFifoRig, SqsFifoRig, SqsStandardRig

RIGS: tuple[type[SourceRig], ...] = (EmbeddedRig, NatsRig, ActiveMqRig, SqsFifoRig, SqsStandardRig, MotoFifoRig)
