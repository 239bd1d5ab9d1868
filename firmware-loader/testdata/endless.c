/* A program that no NIC takes. */
#include "trapeze.h"

TRAPEZE_IMAGE("endless", "0.1");

TRAPEZE_HOOK("pulse/tx") u64 pulse_tx(struct trapeze_pulse *p)
{
	u64 round = 0;

	while (round != 1)
		__asm__ volatile("" : "+r"(round));
	return round;
}
