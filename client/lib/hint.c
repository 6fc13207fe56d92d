/* client/lib/hint.c - hints for values that have keys of their own, and for their session. Hints
 * for values in memory are recorded with the accesses, which costs no message; the session's turn
 * is sent to the coordinator. */
#include "client/lib/internal.h"

#include <assert.h>
#include <stdlib.h>

#define HINT_GROUP 256u

static_assert(SL_HINT_LANES == SL_SESSION_LANES, "as many in both");

/* Tails first, as in loads: when memory runs short, heads of chains are worth more. */
static void said_note(struct sl_client *client, const struct sl_hinted *of,
                      const struct sl_packed_hints *said)
{
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    const struct sl_attachment *at = sl_client_attachment(client);
    if (at->pins == NULL) {
        return;
    }
    for (uint32_t end = of->count; end > 0;) {
        struct sl_key keys[HINT_GROUP];
        struct sl_entry entries[HINT_GROUP];
        sl_err codes[HINT_GROUP];
        uint32_t share = SL_MIN(end, HINT_GROUP);
        sl_client_keys_look(&of->keys[end - share], share, keys);
        sl_client_look_batch(client, at, keys, share, entries, codes);
        for (uint32_t i = share; i-- > 0;) {
            if (codes[i] == SL_OK && entries[i].extent.generation != 0) {
                sl_pins_note_hints(at->pins, entries[i].ref,
                                   entries[i].extent.generation | SL_ACCESS_STORED,
                                   sl_packed_hints_pack(said) | SL_SAID_ALONE);
            }
        }
        end -= share;
    }
}

static sl_err turn_tell(struct sl_client *client, const struct sl_hints *hints,
                        const struct sl_hinted *of, uint64_t deadline_ns, struct sl_error *why)
{
    struct sl_text *texts = malloc(of->count * sizeof *texts);
    sl_err err = SL_OK;
    if (texts == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "hint: %u keys", of->count);
    }
    for (uint32_t first = 0; err == SL_OK && first < of->count;) {
        struct sl_client_call call = {.to = "coordinator", .deadline_ns = deadline_ns};
        uint32_t share = sl_client_keys_share(client, &of->keys[first], of->count - first, texts);
        call.msg.type = SL_MSG_SESSION_TURN;
        call.msg.op_id = sl_client_op_id(client);
        call.msg.body.session_turn =
            (struct sl_body_session_turn){.session_id = sl_client_session_id(hints->session_id),
                                          .pause_ns = hints->pause_ns,
                                          .ends = hints->session == SL_SESSION_ENDS,
                                          .asked = of->asked && first == 0,
                                          .lane = of->lane,
                                          .keys = {.at = texts, .count = share}};
        err = sl_client_call(client, &call, why);
        first += share;
    }
    free(texts);
    return err;
}

sl_err sl_hint_batch(struct sl_client *client, const struct sl_hints *hints,
                     const struct sl_hinted *of, uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_packed_hints said = {.session = (uint32_t)hints->session,
                                   .priority = (uint32_t)hints->priority,
                                   .keep_ns = hints->keep_ns};
    sl_err err = sl_client_hints_check("hint", hints, why);
    if (err == SL_OK && of->lane >= SL_HINT_LANES) {
        err =
            sl_fail(why, SL_ERR_INVALID, "hint: lane is %u, not below %u", of->lane, SL_HINT_LANES);
    }
    err = err == SL_OK ? sl_client_keys_check("hint", of->keys, of->count, why) : err;
    err = err == SL_OK ? sl_client_check_writable(client, why) : err;
    if (err != SL_OK || of->count == 0) {
        return err;
    }
    if (hints->pause_ns != 0 && said.session == SL_SESSION_UNKNOWN) {
        said.session = SL_SESSION_CONTINUES; /* a known next turn implies that it continues */
    }
    (void)sl_client_reattach(client, true, NULL);
    if (said.session != SL_SESSION_UNKNOWN || said.priority != SL_PRIORITY_UNKNOWN ||
        said.keep_ns != 0) {
        said_note(client, of, &said);
    }
    return hints->session_id == NULL
               ? SL_OK
               : turn_tell(client, hints, of, sl_client_deadline(client, timeout_ns), why);
}
