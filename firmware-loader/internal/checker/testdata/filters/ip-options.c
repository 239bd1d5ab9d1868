/* A header of variable length, and a sum of its words up to a limit that the frame
 * says: IPv4 with options, then TCP. */
#include "trapeze.h"

TRAPEZE_IMAGE("ip-options", "1.0");

struct tcp {
	u16 source, destination;
	u32 sequence, acknowledged;
	u8 words, flags;
	u16 window, checksum, urgent;
};

TRAPEZE_HOOK("filter/rx") u64 ip_options(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f);
	u32 length, i, sum = 0;
	struct tcp *tcp;

	if (data + 34 > end || data[23] != 6)
		return TRAPEZE_PASS;
	length = (data[14] & 15) << 2;
	if (length < 20 || data + 14 + length > end)
		return TRAPEZE_DROP;
	for (i = 0; i < 30; i++) {
		if (2 * i >= length)
			break;
		if (data + 14 + 2 * i + 2 > end)
			break;
		sum += *(u16 *)(data + 14 + 2 * i);
	}
	tcp = (void *)(data + 14 + length);
	if ((void *)(tcp + 1) > (void *)end)
		return TRAPEZE_DROP;
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff && tcp->flags & 2 ? TRAPEZE_PASS : TRAPEZE_DROP;
}
