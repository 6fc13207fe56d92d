/* client/tools/supervise/names.h - whether paths of a running node still lead to its files:
 * cleaners and users remove files, or replace them by copies. */
#ifndef SL_CLIENT_SUPERVISE_NAMES_H
#define SL_CLIENT_SUPERVISE_NAMES_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct sup_name {
    dev_t device;
    ino_t inode; /* 0: no file was seen yet */
};
/* One look at a path. Remembers the first file that it sees there. False: the path is missing or is
 * another file now; if no file was seen yet, only if one was expected. */
bool sup_name_look(struct sup_name *name, const char *path, bool expected);

/* Files of an actor or helper; in the order of their rows in names.c. */
enum { SUP_ACTOR_NAMES = 8, SUP_MEMORY_NAMES = 4 };
/* The first file of the actor that is missing or replaced, relative to its directory; NULL: none.
 * must: its socket and page must exist by now. */
const char *sup_actor_names_look(struct sup_name names[SUP_ACTOR_NAMES], const char *runtime_dir,
                                 const char *shm_dir, const char *actor, bool must,
                                 char out[PATH_MAX]);
/* The same for the node's shared memory: gone gets all such files, each after a blank. False: none.
 * Files of metrics are not included: the registrar creates them again. */
bool sup_memory_names_look(struct sup_name names[SUP_MEMORY_NAMES], const char *shm_dir,
                           char gone[64]);

#endif
