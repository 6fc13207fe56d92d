/* runtime/net/fabric/core/rails.c - opens and closes rails, and chooses rails for pieces. */
#include "runtime/net/fabric/core/tables.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* ---- life ---- */

static sl_err tables_make(struct fabric_rail *rail, struct sl_error *why)
{
    const struct sl_fabric_options *options = &rail->options;
    size_t lane_count = (size_t)options->peers_max * options->lanes;
    rail->mappings = calloc(options->memories_max, sizeof(*rail->mappings));
    rail->peers = calloc(options->peers_max, sizeof(*rail->peers));
    rail->lanes = aligned_alloc(64, lane_count * sizeof(*rail->lanes)); /* contains digests */
    rail->units = calloc(lane_count * options->depth, sizeof(*rail->units));
    rail->shares = calloc(options->grants_max, sizeof(*rail->shares));
    rail->rights = calloc(options->keys_max, sizeof(*rail->rights));
    if (rail->mappings == NULL || rail->peers == NULL || rail->lanes == NULL ||
        rail->units == NULL || rail->shares == NULL || rail->rights == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of a rail");
    }
    memset(rail->lanes, 0, lane_count * sizeof(*rail->lanes));
    return SL_OK;
}

/* Accepts NULL, and a partly opened rail. */
static void rail_close(struct fabric_rail *rail)
{
    if (rail == NULL) {
        return;
    }
    if (rail->backend != NULL) {
        rail->fabric->ops->close(rail);
    }
    for (uint32_t i = 0; rail->peers != NULL && i < rail->options.peers_max; i++) {
        free(rail->peers[i].address);
    }
    for (uint32_t i = 0; rail->shares != NULL && i < rail->options.grants_max; i++) {
        free(rail->shares[i].key);
    }
    free(rail->mappings);
    free(rail->peers);
    free(rail->lanes);
    free(rail->units);
    free(rail->shares);
    free(rail->rights);
    free(rail);
}

/* tcp has a list of addresses, other back ends of NICs. */
static const char **entry_of(struct sl_fabric_options *options)
{
    return strcmp(options->kind, "tcp") == 0 ? &options->address : &options->nic;
}

static void entry_take(const char **list, char out[FABRIC_NAME_BYTES])
{
    size_t length = strcspn(*list, ",");
    const char *at = *list, *end = at + length;
    while (at < end && *at == ' ') {
        at++;
    }
    while (end > at && end[-1] == ' ') {
        end--;
    }
    (void)snprintf(out, FABRIC_NAME_BYTES, "%.*s",
                   (int)SL_MIN(end - at, (ptrdiff_t)FABRIC_NAME_BYTES), at);
    *list += length + ((*list)[length] == ',');
}

/* Opens a rail with tables for everything, since it may be the only rail that is up. */
static sl_err rail_open(struct sl_fabric *fabric, uint32_t index, const char *name,
                        struct sl_error *why)
{
    struct fabric_rail *rail = calloc(1, sizeof(*rail));
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = index};
    if (rail == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a rail");
    }
    *rail = (struct fabric_rail){
        .fabric = fabric, .index = index, .fd = -1, .options = fabric->options};
    if (fabric->list_count > 1) {
        memcpy(rail->name, name, sizeof(rail->name));
        *entry_of(&rail->options) = rail->name;
        rail->options.movers =
            rail->options.movers == 0 ? 0 : SL_MAX(rail->options.movers / fabric->list_count, 1u);
    }
    sl_err err = tables_make(rail, why);
    if (err == SL_OK) {
        err = fabric->ops->open(rail, why);
    }
    if (err == SL_OK && fabric->list_count == 1) {
        fabric->fd = rail->fd;
    } else if (err == SL_OK && rail->fd >= 0 &&
               epoll_ctl(fabric->fd, EPOLL_CTL_ADD, rail->fd, &event) < 0) {
        err = sl_fail_os(why, errno, "watch the descriptor of rail %u", index);
    }
    if (err != SL_OK) {
        if (rail->backend != NULL) {
            fabric->ops->quiesce(rail);
        }
        rail_close(rail);
        return err;
    }
    fabric->rails[fabric->rail_count++] = rail;
    return SL_OK;
}

static void about_add(struct sl_fabric *fabric, const char *text)
{
    size_t used = strlen(fabric->about), room = sizeof(fabric->about);
    (void)snprintf(fabric->about + used, room - used, "%s%.100s", used > 0 ? "; " : "", text);
}

/* Lists failed rails first, because the text may be too short for all. */
static void about_make(struct sl_fabric *fabric)
{
    if (fabric->list_count == 1) {
        memcpy(fabric->about, fabric->rails[0]->about, sizeof(fabric->about));
        return;
    }
    if (fabric->rail_count < fabric->list_count) {
        (void)snprintf(fabric->about, sizeof(fabric->about), "%u of %u rails did not open",
                       fabric->list_count - fabric->rail_count, fabric->list_count);
    }
    for (uint32_t i = 0; i < fabric->list_count; i++) {
        if (fabric->reasons[i][0] != '\0') {
            about_add(fabric, fabric->reasons[i]);
        }
    }
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        about_add(fabric, fabric->rails[i]->about);
    }
}

static sl_err rails_open(struct sl_fabric *fabric, const char *list, struct sl_error *why)
{
    struct sl_error first = {0};
    for (uint32_t i = 0; i < fabric->list_count; i++) {
        char name[FABRIC_NAME_BYTES];
        struct sl_error reason = {0};
        entry_take(&list, name);
        if (fabric->list_count > 1 && name[0] == '\0') {
            return sl_fail(why, SL_ERR_CONFIG, "fabric: entry %u of a list is empty", i);
        }
        if (rail_open(fabric, i, name, &reason) != SL_OK) {
            (void)snprintf(fabric->reasons[i], sizeof(fabric->reasons[i]), "%.100s", reason.text);
            first = first.code == SL_OK ? reason : first;
        }
    }
    if (fabric->rail_count == 0) {
        if (why != NULL) {
            *why = first;
        }
        return first.code;
    }
    about_make(fabric);
    return SL_OK;
}

sl_err fabric_rails_open(struct sl_fabric *fabric, struct sl_error *why)
{
    const char *list = *entry_of(&fabric->options);
    list = list == NULL ? "" : list;
    fabric->list_count = 1;
    for (const char *at = list; *at != '\0'; at++) {
        fabric->list_count += *at == ',';
    }
    if (fabric->list_count > FABRIC_RAILS_MAX) {
        return sl_fail(why, SL_ERR_CONFIG, "fabric: a list of %u, at most %u are possible",
                       fabric->list_count, FABRIC_RAILS_MAX);
    }
    fabric->fd = fabric->list_count > 1 ? epoll_create1(EPOLL_CLOEXEC) : -1;
    if (fabric->list_count > 1 && fabric->fd < 0) {
        return sl_fail_os(why, errno, "epoll");
    }
    return rails_open(fabric, list, why);
}

void fabric_rails_close(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        rail_close(fabric->rails[i]);
    }
    if (fabric->list_count > 1 && fabric->fd >= 0) {
        close(fabric->fd);
    }
}

/* ---- which rail ---- */

bool fabric_rail_key_valid(const struct fabric_rail *rail, const struct fabric_key *key)
{
    uint32_t index = (uint32_t)(key - rail->fabric->keys);
    return !key->dies || rail->rights[index].lives == rail->peers[key->peer_index].lives;
}

/* Whether the rail has a valid key for the piece and has not tried it yet. */
static bool rail_may(const struct fabric_rail *rail, const struct fabric_piece *piece)
{
    return (piece->tried & fabric_bit(rail)) == 0 &&
           fabric_right_covers(&rail->rights[piece->key_index], &piece->want) &&
           fabric_rail_key_valid(rail, &rail->fabric->keys[piece->key_index]);
}

static enum sl_fabric_link link_of(const struct fabric_rail *rail, const struct fabric_piece *piece)
{
    return fabric_link_of(&rail->peers[rail->fabric->transfers[piece->transfer].peer_index]);
}

/* Chooses the preferred rail, else the least busy one that is up; with `patient`, else one that is
 * connecting or down. NULL: none. The turn breaks ties, so that small transfers alternate. */
static struct fabric_rail *rail_choose(const struct sl_fabric *fabric,
                                       const struct fabric_piece *piece, bool patient)
{
    static const uint8_t rank_of[] = {
        [SL_FABRIC_UP] = 0, [SL_FABRIC_CONNECTING] = 1, [SL_FABRIC_DOWN] = 2};
    struct fabric_rail *best = NULL;
    uint32_t best_rank = patient ? 3 : 1;
    for (uint32_t n = 0; n < fabric->rail_count; n++) {
        struct fabric_rail *rail = fabric->rails[(fabric->turn + n) % fabric->rail_count];
        if (!rail_may(rail, piece)) {
            continue;
        }
        uint32_t rank = rank_of[link_of(rail, piece)];
        if (rank == 0 && piece->want.rail == rail->index + 1) {
            return rail;
        }
        if (rank < best_rank ||
            (rank == best_rank && best != NULL && rail->out_bytes < best->out_bytes)) {
            best = rail;
            best_rank = rank;
        }
    }
    return best;
}

/* Counts the bytes at once, for the next choice. */
static void piece_give(struct fabric_piece *piece, struct fabric_rail *rail)
{
    piece->rail = rail;
    piece->tried |= fabric_bit(rail);
    rail->out_bytes += piece->want.length_bytes;
}

void fabric_rails_deal(struct sl_fabric *fabric, struct fabric_transfer *transfer)
{
    struct fabric_rail *last = NULL;
    uint64_t total_bytes = 0;
    fabric->turn = (fabric->turn + 1) % fabric->rail_count;
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = fabric->pieces[i].sibling) {
        total_bytes += fabric->pieces[i].want.length_bytes;
    }
    for (uint32_t i = transfer->piece_first; i != FABRIC_NONE; i = fabric->pieces[i].sibling) {
        struct fabric_piece *piece = &fabric->pieces[i];
        bool same = total_bytes < FABRIC_SPLIT_BYTES && last != NULL && piece->want.rail == 0 &&
                    rail_may(last, piece);
        last = same ? last : rail_choose(fabric, piece, true);
        SL_ASSERT(last != NULL); /* its key was checked */
        piece_give(piece, last);
    }
}

/* Whether another rail may succeed: a rail refuses keys of the peer's earlier process. */
static bool code_is_of_rail(uint8_t code)
{
    return code == SL_ERR_PEER_DIED || code == SL_ERR_UNREACHABLE || code == SL_ERR_PERMISSION;
}

bool fabric_rails_retry(struct sl_fabric *fabric, struct fabric_piece *piece)
{
    const struct fabric_transfer *transfer = &fabric->transfers[piece->transfer];
    bool may = !fabric->closing && code_is_of_rail(piece->code) && transfer->give_up == SL_OK &&
               fabric->now_ns < transfer->deadline_ns;
    struct fabric_rail *rail = may ? rail_choose(fabric, piece, false) : NULL;
    if (rail != NULL) {
        piece_give(piece, rail);
    }
    return rail != NULL;
}
