/* Drops frames by addresses, ports and protocol, by rules that the host writes. */
#include "flow.h"

TRAPEZE_IMAGE("acl", "1.0");

struct rule {
	u32 action, reserved;
	u64 hits;
};

struct {
	TRAPEZE_UINT(type, TRAPEZE_HASH);
	TRAPEZE_TYPE(key, struct flow);
	TRAPEZE_TYPE(value, struct rule);
	TRAPEZE_UINT(max_entries, 1024);
} rules TRAPEZE_MAP;

TRAPEZE_HOOK("filter/rx") u64 access_list(struct trapeze_frame *f)
{
	struct flow flow;
	struct rule *rule;

	if (!flow_of(f, &flow))
		return TRAPEZE_PASS;
	rule = trapeze_lookup(&rules, &flow);
	if (!rule)
		return TRAPEZE_PASS;
	__sync_fetch_and_add(&rule->hits, 1);
	return rule->action == TRAPEZE_DROP ? TRAPEZE_DROP : TRAPEZE_PASS;
}
