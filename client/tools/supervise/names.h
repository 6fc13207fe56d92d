/* client/tools/supervise/names.h - whether names still lead to the files that they led to: a
 * cleaner, a hand, or a copy that is put in place of a file takes them from under a node that runs.
 */
#ifndef SL_CLIENT_SUPERVISE_NAMES_H
#define SL_CLIENT_SUPERVISE_NAMES_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct sup_name {
    dev_t device;
    ino_t inode; /* 0: nothing was there yet */
};
/* One look. A name that leads somewhere for the first time is remembered. False: it leads elsewhere
 * now, or nowhere; also nowhere at the first look, if it is expected. */
bool sup_name_look(struct sup_name *name, const char *path, bool expected);

/* Files of an actor or helper; in the order of their rows in names.c. */
enum { SUP_ACTOR_NAMES = 8, SUP_MEMORY_NAMES = 4 };
/* Its first file that leads elsewhere, below the directory that it is in; NULL: none. must: it has
 * its socket and its page by now. */
const char *sup_actor_names_look(struct sup_name names[SUP_ACTOR_NAMES], const char *runtime_dir,
                                 const char *shm_dir, const char *actor, bool must,
                                 char out[PATH_MAX]);
/* Likewise those of the node's memory, all of them with a blank before each; false: none is gone.
 * Files of figures alone the registrar makes anew. */
bool sup_memory_names_look(struct sup_name names[SUP_MEMORY_NAMES], const char *shm_dir,
                           char gone[64]);

#endif
