/* client/lib/guest.c - see guest.h: opening, and views whose pins a stand-in holds. A view of a guest has
 * in its private_pin the number of the attachment, that of the line, and that of the view there. */
#include "client/lib/guest.h"
#include "client/lib/guest_internal.h"
#include "runtime/sl_backoff.h"

#include <stdlib.h>
#include <string.h>

#define VIEW_BITS    12u
#define AGAIN_NS_MIN (1 * SL_NS_PER_MS)
#define AGAIN_NS_MAX (50 * SL_NS_PER_MS)
/* Keys of one question. */
#define PIN_KEYS_MAX 256u

_Static_assert(SL_GATE_VIEWS_MAX == 1u << VIEW_BITS, "numbers of views fit");
_Static_assert(PIN_KEYS_MAX *(sizeof(struct sl_gate_item) + SL_KEY_BYTES_MAX) <=
                   SL_GATE_SLOT_BYTES_MIN,
               "keys fit into a slot");

sl_err sl_guest_open(struct sl_client *client, uint64_t deadline_ns, struct sl_guest **out,
                     struct sl_error *why)
{
    struct guest_line *line = NULL;
    struct sl_guest *guest = calloc(1, sizeof *guest);
    if (guest == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "guest");
    }
    guest_lines_init(&guest->lines, client);
    sl_err err = guest_line_enter(&guest->lines, deadline_ns, &line, why);
    if (err == SL_OK) {
        guest_line_leave(&guest->lines, line);
        err = sl_guest_relay_init(client, &guest->relay, why);
    }
    if (err != SL_OK) {
        sl_guest_close(&guest);
        return err;
    }
    *out = guest;
    return SL_OK;
}

void sl_guest_close(struct sl_guest **guest)
{
    if (*guest != NULL) {
        sl_guest_relay_fini((*guest)->lines.client, &(*guest)->relay);
        guest_lines_close(&(*guest)->lines);
        free(*guest);
        *guest = NULL;
    }
}

/* ---- views ---- */

struct guest_pins {
    struct sl_client *client;
    const struct sl_object_key *keys;
    struct sl_view *views;
    sl_err *codes;
    uint32_t count;
    uint64_t deadline_ns;
    struct sl_error *why;
};

static uint32_t line_of(const struct sl_view *view)
{
    return (uint32_t)(view->private_pin & UINT32_MAX) >> VIEW_BITS;
}

static uint32_t number_of(const struct sl_view *view)
{
    return ((uint32_t)view->private_pin & (SL_GATE_VIEWS_MAX - 1)) + 1;
}

/* SL_ERR_STALE: the stand-in has another life of the node before it than we. */
static sl_err view_make(struct sl_client *client, const struct guest_line *line,
                        const struct sl_gate_item *item, struct sl_view *view)
{
    struct sl_attachment *at = sl_client_hold(client);
    const void *bytes = sl_client_bytes(client, at, item->arena, item->place, item->length_bytes);
    const struct sl_arena *arena = sl_client_arena(at, item->arena);
    if (bytes == NULL || sl_arena_birth_generation(arena) != item->birth) {
        sl_client_let(client, at);
        return SL_ERR_STALE;
    }
    *view = (struct sl_view){.at = bytes,
                             .length_bytes = item->length_bytes,
                             .private_pin = ((uint64_t)at->number << 32) |
                                            (line->number << VIEW_BITS) | (item->number - 1)};
    return SL_OK;
}

/* Of keys [first, first + count). */
static void views_take(const struct guest_pins *pins, struct guest_line *line, uint32_t first,
                       uint32_t count, const unsigned char *slot, bool kept)
{
    struct guest_lines *lines = &pins->client->guest->lines;
    for (uint32_t i = 0, asked = 0; i < count; i++) {
        struct sl_gate_item item;
        sl_err *code = &pins->codes[first + i];
        if (*code != SL_ERR_INCOMPLETE) {
            continue;
        }
        memcpy(&item, slot + asked++ * sizeof item, sizeof item);
        *code = sl_err_received(item.code);
        bool known = item.number >= 1 && item.number <= SL_GATE_VIEWS_MAX;
        if (*code == SL_OK) {
            *code = !known ? SL_ERR_PROTOCOL
                    : kept ? view_make(pins->client, line, &item, &pins->views[first + i])
                           : SL_ERR_STALE;
        }
        if (*code == SL_OK) {
            guest_line_view(lines, line, item.number);
        } else if (*code == SL_ERR_STALE && known) {
            guest_line_unpin(lines, line->number, item.number);
        }
        *code = *code == SL_ERR_STALE ? SL_ERR_INCOMPLETE : *code;
    }
}

/* One question: the keys that are open among these. */
static sl_err share_pin(const struct guest_pins *pins, struct guest_line *line, uint32_t first,
                        uint32_t count)
{
    struct guest_lines *lines = &pins->client->guest->lines;
    struct guest_question question = {.question = SL_GATE_PIN, .deadline_ns = pins->deadline_ns};
    uint32_t slot = 0;
    sl_err err =
        guest_slot_take(lines, line, SL_GATE_PIN, true, pins->deadline_ns, &slot, pins->why);
    if (err != SL_OK) {
        return err;
    }
    unsigned char *at = guest_slot_at(line, slot);
    uint64_t end = PIN_KEYS_MAX * sizeof(struct sl_gate_item);
    for (uint32_t i = first; i < first + count; i++) {
        if (pins->codes[i] == SL_ERR_INCOMPLETE) {
            const struct sl_gate_item item = {.key_at = end, .key_length = pins->keys[i].length};
            memcpy(at + end, pins->keys[i].at, pins->keys[i].length);
            memcpy(at + question.count++ * sizeof item, &item, sizeof item);
            end += pins->keys[i].length;
        }
    }
    if (question.count == 0) {
        guest_slot_free(lines, line, slot);
        return SL_OK;
    }
    err = guest_slot_ask(lines, line, slot, &question, pins->why);
    if (err == SL_OK) {
        err = guest_slot_wait(lines, line, slot, pins->deadline_ns, pins->why);
        if (err == SL_OK) {
            err = guest_line_keep(lines, line, pins->why);
            views_take(pins, line, first, count, at, err == SL_OK);
        }
        guest_slot_free(lines, line, slot);
    }
    return err;
}

static sl_err pass_pin(const struct guest_pins *pins)
{
    struct guest_lines *lines = &pins->client->guest->lines;
    struct guest_line *line = NULL;
    sl_err err = guest_line_enter(lines, pins->deadline_ns, &line, pins->why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t first = 0; first < pins->count && err == SL_OK; first += PIN_KEYS_MAX) {
        err = share_pin(pins, line, first, SL_MIN(pins->count - first, PIN_KEYS_MAX));
    }
    guest_line_leave(lines, line);
    return err;
}

static bool any_open(const struct guest_pins *pins)
{
    bool any = false;
    for (uint32_t i = 0; i < pins->count && !any; i++) {
        any = pins->codes[i] == SL_ERR_INCOMPLETE;
    }
    return any;
}

/* Those that may be asked for again are open then. */
static bool cut_reopen(const struct guest_pins *pins, uint64_t begun_ns)
{
    bool any = false;
    for (uint32_t i = 0; i < pins->count; i++) {
        if (guest_is_cut(pins->codes[i], begun_ns)) {
            pins->codes[i] = SL_ERR_INCOMPLETE;
            any = true;
        }
    }
    return any;
}

/* Codes of the keys that are open yet: nothing more is tried. */
static void pins_end(const struct guest_pins *pins, sl_err code)
{
    for (uint32_t i = 0; i < pins->count; i++) {
        pins->codes[i] = pins->codes[i] == SL_ERR_INCOMPLETE ? code : pins->codes[i];
    }
}

static void pins_take(const struct guest_pins *pins)
{
    uint64_t wait_ns = AGAIN_NS_MIN;
    for (uint32_t i = 0; i < pins->count; i++) {
        pins->codes[i] = sl_put_key_fine(pins->keys[i])
                             ? SL_ERR_INCOMPLETE
                             : sl_fail(pins->why, SL_ERR_INVALID, "key: 1 to %u bytes without NUL",
                                       SL_KEY_BYTES_MAX);
    }
    for (;;) {
        uint64_t begun_ns = sl_clock_monotonic_ns();
        sl_err err = sl_client_serves(pins->client, pins->why);
        if (err == SL_OK) {
            err = pass_pin(pins);
        }
        bool again = err == SL_ERR_UNREACHABLE || guest_is_cut(err, begun_ns) ||
                     (err == SL_OK && any_open(pins));
        bool has_time = sl_budget_ns(sl_clock_monotonic_ns(), pins->deadline_ns) > wait_ns;
        again = (has_time && cut_reopen(pins, begun_ns)) || again;
        if (!again || !has_time) {
            pins_end(pins, err == SL_OK ? SL_ERR_BUSY : err);
            return;
        }
        sl_client_sleep(sl_backoff_next(&wait_ns, AGAIN_NS_MAX));
        (void)sl_client_reattach(pins->client, true, NULL);
    }
}

sl_err sl_guest_pin_batch(struct sl_client *client, const struct sl_object_key *keys,
                          struct sl_view *views, uint32_t count, sl_err *codes, uint64_t timeout_ns,
                          struct sl_error *why)
{
    const struct guest_pins pins = {.client = client,
                                    .keys = keys,
                                    .views = views,
                                    .codes = codes,
                                    .count = count,
                                    .deadline_ns = sl_client_deadline(client, timeout_ns),
                                    .why = why};
    pins_take(&pins);
    return SL_OK;
}

void sl_guest_unpin(struct sl_client *client, const struct sl_view *view)
{
    if (!sl_client_is_ours(client)) { /* the view is its parent's */
        return;
    }
    guest_line_unpin(&client->guest->lines, line_of(view), number_of(view));
    pthread_mutex_lock(&client->lock);
    struct sl_attachment *at = sl_client_attachment_of(client, (uint32_t)(view->private_pin >> 32));
    pthread_mutex_unlock(&client->lock);
    if (at != NULL) { /* the view holds it */
        sl_client_let(client, at);
    }
}

bool sl_guest_view_holds(struct sl_client *client, const struct sl_view *view)
{
    return guest_line_pins(&client->guest->lines, line_of(view));
}
