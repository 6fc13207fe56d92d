/* client/lib/session.c - names of sessions, and reports of their pauses. */
#include "client/lib/internal.h"

#include <inttypes.h>
#include <string.h>

/* 0 means that there is no session. */
uint64_t sl_client_session_id(const char *name)
{
    return name != NULL ? SL_MAX(sl_key_hash(name, strlen(name)), UINT64_C(1)) : 0;
}

sl_err sl_session_pause(struct sl_client *client, const char *session_id, uint64_t pause_ns,
                        uint64_t timeout_ns, struct sl_error *why)
{
    bool unknown = pause_ns == SL_PAUSE_UNKNOWN;
    if (session_id == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "session pause: no name");
    }
    if (!unknown && pause_ns > SL_KEEP_NS_LIMIT) {
        return sl_fail(why, SL_ERR_INVALID,
                       "session pause: pause_ns is %" PRIu64 ", a week at most", pause_ns);
    }
    sl_err err = sl_client_check_writable(client, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_client_call call = {.to = "coordinator",
                                  .deadline_ns = sl_client_deadline(client, timeout_ns)};
    call.msg.type = SL_MSG_SESSION_PAUSE;
    call.msg.body.session_pause.session_id = sl_client_session_id(session_id);
    call.msg.body.session_pause.pause_ns = unknown ? 0 : pause_ns;
    call.msg.body.session_pause.unknown = unknown;
    return sl_client_call(client, &call, why);
}
