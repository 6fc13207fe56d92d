/* client/lib/guest.h - a client at a node of another user, which puts and pins by a stand-in there
 * (ipc/gate_protocol.h). It reads as every client that is opened to read; nothing else of the node is in
 * its reach. */
#ifndef SL_CLIENT_LIB_GUEST_H
#define SL_CLIENT_LIB_GUEST_H

#include "client/lib/put.h"

struct sl_guest; /* opaque; any number of threads */

/* Errors: those of sl_gate_writer_open, SL_ERR_NO_MEMORY. */
sl_err sl_guest_open(struct sl_client *client, uint64_t deadline_ns, struct sl_guest **out,
                     struct sl_error *why);
void sl_guest_close(struct sl_guest **guest);

/* Carries the put out: items whose code is SL_ERR_BUSY. Terms are refused but for at_once. Errors: as
 * sl_put_pieces; SL_ERR_PERMISSION (terms, bundles), SL_ERR_UNSUPPORTED (device memory). */
sl_err sl_guest_put(struct put *put, uint32_t count);

/* Pins keys, which brings those into memory that are on disk or at other nodes: as sl_get_pinned_batch. Errors
 * also: SL_ERR_UNREACHABLE (the stand-in is gone, and no other one came by the deadline). */
sl_err sl_guest_pin_batch(struct sl_client *client, const struct sl_object_key *keys,
                          struct sl_view *views, uint32_t count, sl_err *codes, uint64_t timeout_ns,
                          struct sl_error *why);
void sl_guest_unpin(struct sl_client *client, const struct sl_view *view);
/* Whether the view is pinned: by the stand-in, or since that was killed, by what it left. */
bool sl_guest_view_holds(struct sl_client *client, const struct sl_view *view);

#endif
