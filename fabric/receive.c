/* Receives: who has taken a message posts its receive again, and replies then. Giving a receive to the NIC takes a
 * call into it, so that one waits for the next look while the NIC has enough of them. */
#include "provider.h"

/* hand gives the NIC the receives of an end point that it has not got yet, in their order, up to one that it refuses. */
static VIP_RETURN hand(struct ep *ep)
{
	struct work *w = &ep->receive;
	VIP_RETURN r = VIP_SUCCESS;

	while (w->handed != w->posted) {
		r = vip.PostRecv(ep->vi, descriptor(w, w->handed), ep->memory);
		if (r != VIP_SUCCESS)
			break;
		w->handed++;
	}
	return r;
}

int post_receive(struct ep *ep)
{
	struct work *w = &ep->receive;
	struct domain *d = ep->domain;
	VIP_RETURN r;

	if (w->handed - w->done > w->depth / 2) {
		if (!ep->waiting) {
			ep->waiting = true;
			ep->next_waiting = d->waiting;
			d->waiting = ep;
		}
		return 0;
	}
	r = hand(ep);
	if (r == VIP_SUCCESS || w->handed != w->posted - 1)
		return 0; /* the one that was refused is told of later */
	w->posted--;
	return post_error(r);
}

void drop_receives(struct ep *ep)
{
	struct ep **at = &ep->domain->waiting;

	while (*at != NULL && *at != ep)
		at = &(*at)->next_waiting;
	if (*at == ep)
		*at = ep->next_waiting;
	ep->waiting = false;
}

void hand_receives(struct domain *d)
{
	struct ep **at = &d->waiting;

	while (*at != NULL) {
		struct ep *ep = *at;
		struct work *w = &ep->receive;

		while (hand(ep) != VIP_SUCCESS && w->handed == w->done) {
			/* It is the oldest: its turn to complete, without the NIC. */
			VIP_DESCRIPTOR *refused = descriptor(w, w->handed++);

			refused->CS.Status = VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR;
			complete(ep, refused, true);
		}
		if (w->handed != w->posted) {
			at = &ep->next_waiting;
			continue;
		}
		*at = ep->next_waiting;
		ep->waiting = false;
	}
}
