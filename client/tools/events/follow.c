/* client/tools/events/follow.c - opens, walks and reopens the index; see follow.h. */
#include "client/tools/events/follow.h"
#include "runtime/base/sl_clock.h"

#include <stdio.h>
#include <stdlib.h>

#define OPEN_NS    (100 * SL_NS_PER_MS) /* between tries to open, and checks for another index */
#define STEP       4096u                /* buckets in a step: 256 KiB of table */
#define REST_TIMES 4u                   /* a pause is at least this multiple of the last walk, */
#define REST_NS    (200 * SL_NS_PER_MS) /* but for that reason not longer than this */
#define IDLE_NS \
    (40 * SL_NS_PER_MS) /* time between two looks if nothing has changed for SETTLE_NS */
/* A change of the index also takes a generation or changes a count, but not at the same moment: a
 * walk may run between the two. So walks continue for SETTLE_NS after a change, and one runs every
 * ANYWAY_NS in any case. */
#define SETTLE_NS SL_NS_PER_S
#define ANYWAY_NS (10 * SL_NS_PER_S)

struct ev_follow {
    char shm_dir[1024];
    uint64_t delay_ns;
    struct ev_blocks *blocks;
    struct sl_index_view *view; /* NULL: no index is open */
    struct sl_arena *arena;
    struct sl_index_changes *changes;
    struct ev_follow_stats stats;
    uint64_t look_at_ns; /* next check whether the index was replaced */
    uint64_t walk_at_ns, walk_began_ns, walked_ns, changed_ns;
    uint64_t generation, key_count, group_count; /* at the start of the last walk */
    bool walking;
};

sl_err ev_follow_create(const char *shm_dir, const char *model, uint64_t delay_ns,
                        struct ev_follow **out, struct sl_error *why)
{
    struct ev_follow *follow = calloc(1, sizeof(*follow));
    if (follow == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "events of the index");
    }
    sl_err err = ev_blocks_create(model, &follow->blocks, why);
    if (err != SL_OK) {
        free(follow);
        return err;
    }
    (void)snprintf(follow->shm_dir, sizeof(follow->shm_dir), "%s", shm_dir);
    follow->delay_ns = delay_ns;
    *out = follow;
    return SL_OK;
}

/* Closes the index and forgets its blocks. */
static void follow_close(struct ev_follow *follow)
{
    sl_index_changes_destroy(&follow->changes);
    sl_index_view_close(&follow->view);
    sl_arena_close(&follow->arena);
    ev_blocks_clear(follow->blocks);
    follow->walking = false;
}

void ev_follow_destroy(struct ev_follow **follow)
{
    if (follow == NULL || *follow == NULL) {
        return;
    }
    follow_close(*follow);
    ev_blocks_destroy(&(*follow)->blocks);
    free(*follow);
    *follow = NULL;
}

static uint64_t rest_ns(const struct ev_follow *follow)
{
    return SL_MAX(follow->delay_ns, SL_MIN(REST_TIMES * follow->stats.walk_ns, REST_NS));
}

/* Opens the index and the arena. False: they do not exist or do not belong together. */
static bool follow_open(struct ev_follow *follow, uint64_t now_ns)
{
    sl_err err = sl_index_view_open(follow->shm_dir, &follow->view, NULL);
    if (err == SL_OK) {
        err = sl_arena_attach(follow->shm_dir, 0, false, &follow->arena, NULL);
    }
    if (err == SL_OK &&
        sl_arena_birth_generation(follow->arena) != sl_index_view_birth(follow->view)) {
        err = SL_ERR_NOT_FOUND; /* one of them is just being created again */
    }
    if (err == SL_OK) {
        err = sl_index_changes_create(follow->view, follow->shm_dir, true, &follow->changes, NULL);
    }
    if (err != SL_OK) {
        sl_index_view_close(&follow->view);
        sl_arena_close(&follow->arena);
        return false;
    }
    follow->stats.indexes++;
    follow->generation = 0;
    follow->walk_at_ns = now_ns;
    follow->changed_ns = now_ns;
    return true;
}

/* Begins a walk if the index may have changed since the last one. */
static bool walk_begins(struct ev_follow *follow, uint64_t now_ns)
{
    struct sl_index_stats index;
    uint64_t generation = sl_arena_coming_generation(follow->arena);
    sl_index_view_stats(follow->view, &index);
    if (generation != follow->generation || index.key_count != follow->key_count ||
        index.group_count != follow->group_count) {
        follow->changed_ns = now_ns;
    } else {
        bool settled = follow->walk_began_ns > follow->changed_ns + SETTLE_NS;
        bool anyway = now_ns - follow->walked_ns >= ANYWAY_NS;
        if (settled && !anyway && sl_index_changes_torn(follow->changes) == 0 &&
            sl_index_changes_pending(follow->changes) == 0) {
            return false;
        }
    }
    follow->generation = generation;
    follow->key_count = index.key_count;
    follow->group_count = index.group_count;
    follow->walking = true;
    follow->walk_began_ns = now_ns;
    return true;
}

static bool walk_step(struct ev_follow *follow, uint64_t now_ns, ev_event_fn fn, void *context)
{
    if (!follow->walking && !walk_begins(follow, now_ns)) {
        follow->walk_at_ns = now_ns + SL_MAX(follow->delay_ns, IDLE_NS);
        return false;
    }
    switch (sl_index_changes_step(follow->changes, STEP, ev_blocks_change, follow->blocks)) {
    case SL_INDEX_WALK_END:
        break;
    case SL_INDEX_WALK_DEAD:
        follow_close(follow);
        ev_blocks_settle(follow->blocks, fn, context);
        return true;
    case SL_INDEX_WALK_ON:
    case SL_INDEX_WALK_REFUSED: /* never: ev_blocks_change accepts every change */
    default:
        return false;
    }
    /* now_ns is the start of the step. */
    uint64_t end_ns = SL_MAX(sl_clock_monotonic_ns(), now_ns);
    follow->walking = false;
    follow->walked_ns = end_ns;
    follow->stats.walks++;
    follow->stats.walk_ns = end_ns - follow->walk_began_ns;
    follow->walk_at_ns = end_ns + rest_ns(follow);
    ev_blocks_settle(follow->blocks, fn, context);
    return true;
}

bool ev_follow_step(struct ev_follow *follow, uint64_t now_ns, ev_event_fn fn, void *context)
{
    bool announced = false;
    struct ev_blocks_stats blocks;
    ev_blocks_stats(follow->blocks, &blocks);
    if (now_ns >= follow->look_at_ns) {
        follow->look_at_ns = now_ns + OPEN_NS;
        bool gone = follow->view != NULL &&
                    (sl_index_view_is_cut(follow->view) || blocks.no_memory ||
                     (!sl_index_view_linked(follow->view) &&
                      sl_index_view_current(follow->view, follow->shm_dir) != SL_OK));
        if (gone) {
            follow_close(follow);
            ev_blocks_settle(follow->blocks, fn, context);
            announced = true;
        }
        if (follow->view == NULL) {
            (void)follow_open(follow, now_ns);
        }
    }
    if (follow->view != NULL && (follow->walking || now_ns >= follow->walk_at_ns)) {
        announced = walk_step(follow, now_ns, fn, context) || announced;
    }
    return announced;
}

uint64_t ev_follow_wake_at(const struct ev_follow *follow)
{
    if (follow->view == NULL) {
        return follow->look_at_ns;
    }
    return follow->walking ? 0 : SL_MIN(follow->walk_at_ns, follow->look_at_ns);
}

void ev_follow_report_all(struct ev_follow *follow, ev_event_fn fn, void *context)
{
    ev_blocks_report_all(follow->blocks, fn, context);
}

void ev_follow_stats(const struct ev_follow *follow, struct ev_follow_stats *out)
{
    *out = follow->stats;
    ev_blocks_stats(follow->blocks, &out->blocks);
}
