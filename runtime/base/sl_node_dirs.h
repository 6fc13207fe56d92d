/* runtime/base/sl_node_dirs.h - which files in the directories of a node are the node's. Nothing
 * else there is ever removed: a directory that a user names may have other files, and may be
 * another node's. */
#ifndef SL_RUNTIME_NODE_DIRS_H
#define SL_RUNTIME_NODE_DIRS_H

#include "runtime/base/sl_error.h"

enum sl_node_dir { SL_NODE_DIR_RUNTIME, SL_NODE_DIR_SHM, SL_NODE_DIR_LOG };

/* Segments begin with it; metrics pages have their own. */
#define SL_SEGMENT_MAGIC UINT64_C(0x47455345434c5553) /* "SULCESEG" as stored */

/* A node writes it into its three directories when it starts: a line with the runtime
 * directory, and one that says whether the node made this directory (`made`) or not (`found`). It
 * goes with the last of the node's files. Nodes of a release before have none. */
#define SL_NODE_DIR_MARKER ".sluice-node"

struct sl_node_dir_want {
    enum sl_node_dir place;
    const char *path;        /* the directory */
    const char *runtime_dir; /* of the node */
    /* Files and directories that settings name (disks, keys): one that lies here is nobody else's.
     */
    const char *const *others;
    uint32_t other_count;
};

struct sl_node_dir_seen {
    bool marked; /* it has the marker of this node, or of one whose runtime directory is gone */
    bool made;   /* by the node, which then removes it when it is empty */
    bool holds;  /* marked, or files of a node alone, with one that only nodes make */
    char foreign[256]; /* one that is no node's; "": there is none */
};

struct sl_paths;
/* Whether the path of that setting (a member of paths may be it) is none of the runtime, shm and
 * log directory: a stop removes the marker with the last file of one of them, and takes what the
 * other one has for somebody else's. Errors: SL_ERR_CONFIG. */
sl_err sl_node_dirs_apart(const struct sl_paths *paths, const char *setting, const char *path,
                          struct sl_error *why);
/* Looks into the directory; one that does not exist has nothing. Errors: SL_ERR_FOREIGN (a file
 * among a node's has the name of one, and is a link, has another owner, or a second name elsewhere:
 * somebody put it there; in a runtime directory also without a marker), SL_ERR_EXISTS (the
 * directory is another node's), SL_ERR_OS and kin. */
sl_err sl_node_dir_look(const struct sl_node_dir_want *want, struct sl_node_dir_seen *out,
                        struct sl_error *why);
/* For a start, before anything is made. Errors: those of sl_node_dir_look; SL_ERR_FOREIGN: the
 * directory has files that are no node's, or one with a name that the node is going to give and of
 * another type. In the directory of the logs these may stay, unless one of a log's name is there,
 * too. */
sl_err sl_node_dir_check(const struct sl_node_dir_want *want, struct sl_node_dir_seen *seen,
                         struct sl_error *why);
/* Makes the directory (sl_dir_make) and leaves the marker. */
sl_err sl_node_dir_take(const struct sl_node_dir_want *want, struct sl_error *why);
/* The same for a node that runs: its marker was removed, or it is of a release before. Files of
 * others may lie there. */
sl_err sl_node_dir_mark(const struct sl_node_dir_want *want, struct sl_error *why);
/* Removes what a node that has ended leaves and does not need, by name and type, with all: every
 * file of a node, logs too. The directory follows if the node made it (all: always) and it is
 * empty. Does nothing where !holds, or where the directory is another node's. */
sl_err sl_node_dir_clear(const struct sl_node_dir_want *want, bool all, struct sl_error *why);

#endif
