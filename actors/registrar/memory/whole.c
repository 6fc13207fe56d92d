/* actors/registrar/memory/whole.c - detects shm files that another process truncated.
 *
 * A process that touches the hole of a file notices (runtime/base/sl_guard.h). But the registrar
 * reads no values, and a process that waits reads nothing. So the registrar compares the sizes in
 * each tick, and ends when one is wrong. The next registrar finds the short file and creates new
 * files, to which clients and actors attach. */
#include "actors/registrar/memory/whole.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/seen.h"
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_labels.h"
#include "runtime/base/sl_metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES         256u
#define METRICS_PREFIX     "metrics."
#define METRICS_OF_CLIENTS "metrics.client."

static bool is_values(const char *name)
{
    return strncmp(name, "arena.", 6) == 0 || strcmp(name, "index") == 0 ||
           strcmp(name, "leases") == 0;
}

static bool is_pins(const char *name)
{
    return strncmp(name, "pins.", 5) == 0;
}

/* Calls visit for each file of the directory until it returns true. */
static bool files_any(struct registrar *self,
                      bool (*visit)(struct registrar *self, const char *name))
{
    SL_AUTO(closedir) DIR *directory = opendir(self->env->paths->shm_dir);
    const struct dirent *entry = NULL;
    bool found = false;
    while (directory != NULL && !found && (entry = readdir(directory)) != NULL) {
        found = visit(self, entry->d_name);
    }
    return found;
}

static bool is_short(struct registrar *self, const char *name)
{
    struct sl_error why = {0};
    if ((!is_values(name) && !is_pins(name)) ||
        !sl_shm_file_file_is_short(self->env->paths->shm_dir, name, &why)) {
        return false;
    }
    reg_log(self, SL_LOG_ERROR, 0,
            "%s by another process: the node's memory is created again, and values "
            "in memory only are lost",
            why.text);
    return true;
}

static bool segment_drop(struct registrar *self, const char *name)
{
    struct sl_error why = {0};
    bool goes = is_values(name) ||
                (is_pins(name) && sl_shm_file_file_is_short(self->env->paths->shm_dir, name, NULL));
    if (goes && sl_shm_file_remove(self->env->paths->shm_dir, name, &why) != SL_OK) {
        reg_log(self, SL_LOG_WARN, 0, "%s; creating it again may fail", why.text);
    }
    return false; /* the walk continues */
}

/* Kills the process of an actor, which its metrics name. It has mapped the old memory, most actors
 * only once, and could write values there for records of the new one. Clients check which memory is
 * current. */
static bool actor_kill(struct registrar *self, const char *name)
{
    char path[sizeof(self->env->paths->shm_dir) + NAME_BYTES + 1];
    struct sl_metrics_view *view = NULL;
    struct sl_metrics_summary summary;
    if (strncmp(name, METRICS_PREFIX, sizeof(METRICS_PREFIX) - 1) != 0 ||
        strncmp(name, METRICS_OF_CLIENTS, sizeof(METRICS_OF_CLIENTS) - 1) == 0) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", self->env->paths->shm_dir, name);
    if (sl_metrics_view_open(path, &view, NULL) != SL_OK) {
        return false; /* an unknown version; or cut, which its actor does not survive */
    }
    sl_metrics_view_summary(view, &summary);
    sl_metrics_view_close(&view);
    if (!sl_proc_id_equal(summary.proc, self->env->self) &&
        self->env->ops->alive(self->env, summary.proc)) {
        reg_log(self, SL_LOG_WARN, 0, "%s, process %u, is killed: it has the old memory mapped",
                name + sizeof(METRICS_PREFIX) - 1, summary.proc.pid);
        self->env->ops->kill(self->env, summary.proc);
    }
    return false; /* the walk continues */
}

void reg_memory_recreate_if_cut(struct registrar *self)
{
    if (files_any(self, is_short)) {
        (void)files_any(self, actor_kill);
        (void)files_any(self, segment_drop);
        (void)files_any(self, actor_kill); /* those started meanwhile */
    }
}

/* Only statistics depend on these files: new ones are made, and no process has to end. */
static void counts_renew(struct registrar *self)
{
    struct sl_error why = {0};
    const char *shm_dir = self->env->paths->shm_dir;
    if (sl_shm_file_file_is_lost(shm_dir, "seen", &why)) {
        reg_log(self, SL_LOG_WARN, 0, "%s by another process: a new one is created", why.text);
        reg_seen_renew(self);
    }
    if (sl_index_changes_renew(self->index, shm_dir)) {
        reg_log(self, SL_LOG_WARN, 0,
                "the counts of changes were cut short, or missing: new ones are created");
    }
    bool counts = sl_shm_file_file_is_lost(shm_dir, "counts", &why);
    bool labels = !counts && sl_shm_file_file_is_lost(shm_dir, "labels", &why);
    if (!counts && !labels) {
        return;
    }
    reg_log(self, SL_LOG_WARN, 0, "%s by another process: clients' counts start again", why.text);
    if ((counts ? sl_counts_make : sl_labels_make)(shm_dir, &why) != SL_OK) {
        reg_log(self, SL_LOG_WARN, 0, "clients that attach now count nothing: %s", why.text);
    }
}

sl_err reg_memory_check_sizes(struct registrar *self)
{
    counts_renew(self);
    const char *what = sl_arena_is_short(self->arena)       ? "the arena"
                       : sl_index_is_short(self->index)     ? "the index or the leases"
                       : sl_settled_is_short(self->settled) ? "the notes of settled requests"
                                                            : NULL;
    for (uint32_t i = 0; what == NULL && i < self->peers->high; i++) {
        const struct reg_peer *peer = &self->peers->all[i];
        if (peer->used && peer->pins != NULL && sl_pins_view_is_short(peer->pins)) {
            what = peer->name;
        }
    }
    if (what == NULL) {
        return SL_OK;
    }
    reg_log(self, SL_LOG_ERROR, 0,
            "shared memory (%s) was cut short by another process: the registrar ends, and the next "
            "one creates it again",
            what);
    return SL_ERR_INTERNAL;
}
