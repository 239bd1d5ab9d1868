/* Adaptive message pipelining: all that has arrived, from MINPULSE bytes on. Under
 * load frames have arrived whole before their turn comes, and it becomes store and
 * forward by itself. */
#include "trapeze.h"

TRAPEZE_IMAGE("amp", "1.0");

TRAPEZE_INLINE u64 decide(const struct trapeze_pulse *p)
{
	u64 available = p->arrived - p->sent;

	return available >= p->minimum || p->arrived == p->length ? available : 0;
}

TRAPEZE_HOOK("pulse/tx") u64 pulse_tx(struct trapeze_pulse *p)
{
	return decide(p);
}

TRAPEZE_HOOK("pulse/rx") u64 pulse_rx(struct trapeze_pulse *p)
{
	return decide(p);
}
