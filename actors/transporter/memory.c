/* actors/transporter/memory.c - this node's index and arenas, as the transporter reads and
 * registers them. */
#include "actors/transporter/internal.h"

#include <stdio.h>
#include <sys/stat.h>

bool tr_view(struct transporter *self)
{
    char path[sizeof(self->env->paths->shm_dir) + 8];
    struct stat status;
    (void)snprintf(path, sizeof(path), "%s/index", self->env->paths->shm_dir);
    if (stat(path, &status) != 0) {
        return false;
    }
    if (self->view != NULL && self->view_device == status.st_dev &&
        self->view_inode == status.st_ino) {
        return true;
    }
    sl_index_view_close(&self->view);
    struct sl_error why = {0};
    if (sl_index_view_open(self->env->paths->shm_dir, &self->view, &why) != SL_OK) {
        sl_log_write(self->env->log, SL_LOG_WARN, 0, "index not opened, trying again: %s",
                     why.text);
        return false;
    }
    self->view_device = status.st_dev;
    self->view_inode = status.st_ino;
    return true;
}

static bool arena_stat(struct transporter *self, uint32_t id, struct stat *status)
{
    char path[sizeof(self->env->paths->shm_dir) + 16];
    (void)snprintf(path, sizeof(path), "%s/arena.%u", self->env->paths->shm_dir, id);
    return stat(path, status) == 0;
}

bool tr_arena_same(struct transporter *self, uint32_t id)
{
    struct stat status;
    const struct tr_arena *arena = &self->arenas[id];
    bool same = arena->arena != NULL && arena_stat(self, id, &status) &&
                status.st_dev == arena->device && status.st_ino == arena->inode;
    self->memory_replaced = self->memory_replaced || (arena->arena != NULL && !same);
    return same;
}

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
    struct stat status;
    if (arena->arena != NULL) {
        (void)tr_arena_same(self, id);
    } else if (!arena_stat(self, id, &status) ||
               sl_arena_attach(self->env->paths->shm_dir, id, true, &arena->arena, NULL) != SL_OK) {
        return false;
    } else {
        arena->device = status.st_dev;
        arena->inode = status.st_ino;
        /* The file may have been made anew between the two: then the next look finds it. */
        (void)tr_arena_same(self, id);
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
    bool all = tr_view(self);
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
