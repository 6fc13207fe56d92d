/* client/tools/supervise/names.c - see names.h; the lists of a node's files. */
#include "client/tools/supervise/names.h"

#include "runtime/base/sl_base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool sup_name_look(struct sup_name *name, const char *path, bool expected)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        bool gone = errno == ENOENT || errno == ENOTDIR;
        return !gone || (name->inode == 0 && !expected);
    }
    if (name->inode == 0) {
        *name = (struct sup_name){.device = status.st_dev, .inode = status.st_ino};
    }
    return name->device == status.st_dev && name->inode == status.st_ino;
}

static const struct {
    const char *format; /* of its path; %s: the actor */
    bool shm;           /* in shm_dir, else in runtime_dir */
    bool every;         /* every actor has it */
} actor_names[SUP_ACTOR_NAMES] = {
    {"%s.sock", false, true}, {"%s.lock", false, false},   {"%s.http", false, false},
    {"%s.pub", false, false}, {"%s.replay", false, false}, {"%s.at", false, false},
    {"pid/%s", false, false}, {"metrics.%s", true, true},
};

const char *sup_actor_names_look(struct sup_name names[SUP_ACTOR_NAMES], const char *runtime_dir,
                                 const char *shm_dir, const char *actor, bool must,
                                 char out[PATH_MAX])
{
    for (size_t i = 0; i < SL_COUNT(actor_names); i++) {
        int above = snprintf(out, PATH_MAX, "%s/", actor_names[i].shm ? shm_dir : runtime_dir);
        (void)snprintf(out + above, PATH_MAX - (size_t)above, actor_names[i].format, actor);
        if (!sup_name_look(&names[i], out, must && actor_names[i].every)) {
            return out + above;
        }
    }
    return NULL;
}

bool sup_memory_names_look(struct sup_name names[SUP_MEMORY_NAMES], const char *shm_dir,
                           char gone[64])
{
    /* The first two exist once the registrar is ready. */
    static const char *const files[SUP_MEMORY_NAMES] = {"index", "arena.0", "settled", "leases"};
    char path[PATH_MAX];
    gone[0] = '\0';
    for (size_t i = 0; i < SL_COUNT(files); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", shm_dir, files[i]);
        if (!sup_name_look(&names[i], path, i < 2)) {
            size_t length = strlen(gone);
            (void)snprintf(gone + length, 64 - length, " %s", files[i]);
        }
    }
    return gone[0] != '\0';
}
