/* Headers behind headers of variable length: VXLAN. */
#include "trapeze.h"

TRAPEZE_IMAGE("tunnel", "1.0");

TRAPEZE_INLINE u8 *behind_ip(u8 *ip, u8 *end, u8 *protocol)
{
	u32 words;

	if (ip + 20 > end)
		return 0;
	words = ip[0] & 15;
	if (words < 5)
		return 0;
	*protocol = ip[9];
	return ip + words * 4;
}

TRAPEZE_HOOK("demux/rx") u64 tunnel(struct trapeze_frame *f)
{
	u8 *data = TRAPEZE_DATA(f), *end = TRAPEZE_END(f), *at, *inner, protocol;

	if (data + 14 > end || *(u16 *)(data + 12) != 8)
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	at = behind_ip(data + 14, end, &protocol);
	if (!at || protocol != 17 || at + 16 > end || *(u16 *)(at + 2) != 0xb512)
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	inner = at + 16;
	if (inner + 14 > end || *(u16 *)(inner + 12) != 8)
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	at = behind_ip(inner + 14, end, &protocol);
	if (!at || protocol != 6 || at + 4 > end)
		return TRAPEZE_DEMUX(TRAPEZE_DEFAULT, TRAPEZE_DEFAULT);
	return TRAPEZE_DEMUX((at[0] ^ at[1] ^ at[2] ^ at[3]) & 7, TRAPEZE_DEFAULT);
}
