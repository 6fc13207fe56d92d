/* runtime/base/sl_node_dirs.h - which files in a node's directories belong to the node. Only these
 * are ever removed: a directory that a user names may have other files, and may belong to another
 * node. */
#ifndef SL_RUNTIME_NODE_DIRS_H
#define SL_RUNTIME_NODE_DIRS_H

#include "runtime/base/sl_error.h"

enum sl_node_dir { SL_NODE_DIR_RUNTIME, SL_NODE_DIR_SHM, SL_NODE_DIR_LOG };

/* First bytes of shm files; metrics pages have their own magic. */
#define SL_SHM_FILE_MAGIC UINT64_C(0x47455345434c5553) /* "SULCESEG" as stored */

/* A node writes this marker into its three directories when it starts: a line with the runtime
 * directory, and one that records whether the node made the directory (`made`) or not (`found`). It
 * is removed with the last of the node's files. Nodes of the previous release have none. */
#define SL_NODE_DIR_MARKER ".sluice-node"

struct sl_node_dir_want {
    enum sl_node_dir place;
    const char *path;        /* the directory */
    const char *runtime_dir; /* of the node */
    /* Files and directories that settings name (disks, keys); one inside `path` is not foreign. */
    const char *const *others;
    uint32_t other_count;
};

struct sl_node_dir_seen {
    bool marked; /* has the marker of this node, or of a node whose runtime directory is gone */
    bool made;   /* the node made the directory: sl_node_dir_clear removes it from shm_dir */
    bool holds;  /* marked, or only a node's files, with one that only nodes create */
    char foreign[256]; /* a file that belongs to no node; "": none */
};

struct sl_paths;
/* Checks that the path of a setting (may be a member of paths) is none of the runtime, shm and log
 * directories. A stop removes the marker with the last file of one of them, and would take the
 * other one's files for foreign. Errors: SL_ERR_CONFIG. */
sl_err sl_node_dirs_check_path(const struct sl_paths *paths, const char *setting, const char *path,
                               struct sl_error *why);
/* Scans the directory; one that does not exist is empty. Errors: SL_ERR_FOREIGN (a file with the
 * name of a node's file is a link, has another owner or a second hard link, so another program put
 * it there; in a runtime directory also without a marker), SL_ERR_EXISTS (the directory is another
 * node's), SL_ERR_OS and kin. */
sl_err sl_node_dir_scan(const struct sl_node_dir_want *want, struct sl_node_dir_seen *out,
                        struct sl_error *why);
/* Checks the directory before a start creates anything. Errors: those of sl_node_dir_scan;
 * SL_ERR_FOREIGN: it has files of no node, or a file of another type under a name that the node
 * will use. The log directory may have foreign files, unless it also has one with a log's name. */
sl_err sl_node_dir_check(const struct sl_node_dir_want *want, struct sl_node_dir_seen *seen,
                         struct sl_error *why);
/* Creates the directory (sl_dir_make) and writes the marker. */
sl_err sl_node_dir_claim(const struct sl_node_dir_want *want, struct sl_error *why);
/* Writes the marker for a running node, because it was removed or the node was started by an older
 * release. Foreign files are allowed. */
sl_err sl_node_dir_mark(const struct sl_node_dir_want *want, struct sl_error *why);
/* Removes the files that an ended node leaves and does not need, by name and type; with `all` every
 * file of the node, logs included. A directory that is then empty is removed also, without `all`
 * only the shm directory and if the node made it. Does nothing if !holds or if it is another
 * node's. */
sl_err sl_node_dir_clear(const struct sl_node_dir_want *want, bool all, struct sl_error *why);

#endif
