/* actors/transporter/regions/memory.c - this node's index and arenas, as the transporter reads and
 * registers them. */
#include "actors/transporter/regions/regions.h"

bool tr_arena_same(struct transporter *self, uint32_t id)
{
    struct sl_arena *arena = self->arenas[id].arena;
    bool same = arena != NULL && sl_arena_current(arena, self->env->paths->shm_dir) == SL_OK;
    self->memory_replaced = self->memory_replaced || (arena != NULL && !same);
    return same;
}

bool tr_arena_looked(struct transporter *self, struct tr_arena_looks *looks, uint32_t arena)
{
    uint64_t bit = UINT64_C(1) << arena;
    if ((looks->looked & bit) == 0) {
        looks->looked |= bit;
        looks->same |= tr_arena_same(self, arena) ? bit : 0;
    }
    return (looks->same & bit) != 0;
}
_Static_assert(TR_ARENAS_MAX <= 64, "a bit for every arena");

static void arena_register(struct transporter *self, uint32_t id)
{
    struct tr_arena *arena = &self->arenas[id];
    struct sl_error why = {0};
    struct sl_fabric_memory memory = {
        .at = sl_arena_at(arena->arena, 0, 1),
        .length_bytes = sl_arena_data_bytes(arena->arena),
        .chunk_bytes = sl_arena_chunk_bytes(arena->arena),
    };
    if (self->whole_arena && sl_arena_populated_bytes(arena->arena) < memory.length_bytes) {
        return;
    }
    sl_err err = sl_fabric_memory_add(self->fabric, &memory, &arena->memory, &why);
    arena->added = err == SL_OK;
    if (err != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "arena %u not registered: %s", id, why.text);
    }
}

/* False: there is none under this number. */
static bool arena_look(struct transporter *self, uint32_t id)
{
    struct tr_arena *arena = &self->arenas[id];
    if (arena->arena != NULL) {
        (void)tr_arena_same(self, id);
    } else if (sl_arena_attach(self->env->paths->shm_dir, id, true, &arena->arena, NULL) != SL_OK) {
        return false;
    }
    if (!arena->added) {
        arena_register(self, id);
    }
    return true;
}

void tr_memory_step(struct transporter *self, uint64_t now_ns)
{
    if (now_ns < self->memory_due_ns) {
        return;
    }
    bool all = sl_index_view_ready(self->env, &self->view);
    uint32_t id = 0;
    while (id < TR_ARENAS_MAX && arena_look(self, id)) {
        all = all && self->arenas[id].registered;
        id++;
    }
    all = all && id > 0;
    self->memory_due_ns = now_ns + (all ? TR_MEMORY_SEEN_NS : TR_MEMORY_NS);
}

void tr_memory_registered(struct transporter *self, uint32_t memory, const struct sl_error *why)
{
    for (uint32_t id = 0; id < TR_ARENAS_MAX; id++) {
        struct tr_arena *arena = &self->arenas[id];
        if (!arena->added || arena->memory != memory) {
            continue;
        }
        arena->registered = why == NULL || why->code == SL_OK;
        if (!arena->registered) {
            sl_log_write(self->env->log, SL_LOG_ERROR, 0,
                         "arena %u cannot be registered, peers cannot read it: %s", id, why->text);
        }
        for (uint32_t i = 0; i < self->peer_count; i++) {
            self->peers[i].hello_due_ns = 0; /* there is something new to tell */
        }
    }
}

void tr_memory_fini(struct transporter *self)
{
    for (uint32_t id = 0; id < TR_ARENAS_MAX; id++) {
        sl_arena_close(&self->arenas[id].arena);
    }
    sl_index_view_close(&self->view);
}
