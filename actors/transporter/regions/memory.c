/* actors/transporter/regions/memory.c - opens this node's index and arena, registers the arena. */
#include "actors/transporter/regions/regions.h"

bool tr_arena_is_current(struct transporter *self)
{
    struct sl_arena *arena = self->arena.arena;
    bool same = arena != NULL && sl_arena_current(arena, self->env->paths->shm_dir) == SL_OK;
    self->memory_replaced = self->memory_replaced || (arena != NULL && !same);
    return same;
}

static void arena_register(struct transporter *self)
{
    struct tr_arena *arena = &self->arena;
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
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "the arena is not registered: %s", why.text);
    }
}

void tr_memory_step(struct transporter *self, uint64_t now_ns)
{
    struct tr_arena *arena = &self->arena;
    if (now_ns < self->memory_due_ns) {
        return;
    }
    bool ready = sl_index_view_ready(self->env, &self->view);
    if (arena->arena != NULL) {
        (void)tr_arena_is_current(self);
    } else {
        (void)sl_arena_attach(self->env->paths->shm_dir, 0, true, &arena->arena, NULL);
    }
    if (arena->arena != NULL && !arena->added) {
        arena_register(self);
    }
    ready = ready && arena->registered;
    self->memory_due_ns = now_ns + (ready ? TR_MEMORY_SEEN_NS : TR_MEMORY_NS);
}

void tr_memory_registered(struct transporter *self, uint32_t memory, const struct sl_error *why)
{
    struct tr_arena *arena = &self->arena;
    if (!arena->added || arena->memory != memory) {
        return;
    }
    arena->registered = why == NULL || why->code == SL_OK;
    if (!arena->registered) {
        sl_log_write(self->env->log, SL_LOG_ERROR, 0,
                     "the arena cannot be registered, peers cannot read it: %s", why->text);
    }
    for (uint32_t i = 0; i < self->peer_count; i++) {
        self->peers[i].hello_due_ns = 0; /* greet it again: there is a key now */
    }
}

void tr_memory_fini(struct transporter *self)
{
    sl_arena_close(&self->arena.arena);
    sl_index_view_close(&self->view);
}
