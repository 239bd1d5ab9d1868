/* Numbers of the frame, in network order, are an index and a distance. */
#include "trapeze.h"

TRAPEZE_IMAGE("network-order", "1.0");

u8 ports[8192]; /* a bit for each */

TRAPEZE_HOOK("filter/rx") u64 network_order(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), *payload;
	u16 port;

	if (data + 42 > end)
		return TRAPEZE_PASS;
	port = __builtin_bswap16(*(u16 *)(data + 36));
	if (ports[port >> 3] & 1 << (port & 7))
		return TRAPEZE_DROP;
	payload = data + 34 + (__builtin_bswap16(*(u16 *)(data + 38)) & 0x3fff);
	if (payload + 1 > end)
		return TRAPEZE_DROP;
	return *payload ? TRAPEZE_PASS : TRAPEZE_DROP;
}
