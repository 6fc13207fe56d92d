/* client/mooncake/daemons/node.h - the node behind a master: its settings, starting, adopting and
 * ending it.
 *
 * The node is run by deploy/sluice-node, in a session of its own: it and all it holds outlive a
 * master that is killed, and the next master of the same name takes it over when it would start it
 * with the same settings. What those were stands in RUNTIME_DIR/mooncake-master.conf. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_NODE_H
#define SL_CLIENT_MOONCAKE_DAEMONS_NODE_H

#include "client/mooncake/daemons/cluster.h"
#include "client/mooncake/daemons/master_flags.h"
#include "runtime/sl_config.h"
#include "runtime/sl_proc.h"

struct mc_node {
    char instance[64];
    struct sl_config *config; /* as the node's processes see it */
    struct sl_paths paths;
    char config_path[1100];     /* RUNTIME_DIR/mooncake-master.conf */
    char *settings;             /* owned: what it has to say */
    char supervisor_path[1100]; /* sluice-node */
    char program_dir[1024];     /* of this program: where the actors are, if they are there */
    uint64_t room_bytes;        /* that shared memory had free before the node; 0: it was there */
    int lock_fd;                /* only one master has this node */
    struct mc_cluster *cluster; /* owned; NULL: no other hosts */
    struct sl_proc_id supervisor;
    long said_bytes; /* of supervisor.out, before this supervisor said something */
    bool child;      /* the supervisor is a child of this process */
    bool adopted;    /* by start: it ran already */
};

/* mooncake-PORT, or $SLUICE_INSTANCE. */
void mc_node_instance(uint16_t port, char out[64]);
/* Works out everything from flags and environment, and makes the runtime directory. Gives *out, to
 * be given to mc_node_fini also after a failure. Errors: SL_ERR_CONFIG (names flag or variable),
 * SL_ERR_EXISTS (another master has it), SL_ERR_NOT_FOUND (sluice-node), SL_ERR_OS. */
sl_err mc_node_init(const struct mc_flags *flags, struct mc_node *out, struct sl_error *why);
void mc_node_fini(struct mc_node *node);

/* Takes over the node that runs, or starts it; does not wait until it is ready. Errors:
 * SL_ERR_CONFIG (one runs with other settings), SL_ERR_OS. */
sl_err mc_node_start(struct mc_node *node, struct sl_error *why);
/* The supervisor ended: what it printed last. */
void mc_node_last_words(const struct mc_node *node, char *out, size_t out_bytes);
/* Ends the node, its memory too, and waits for that. Errors: SL_ERR_TIMEOUT (it is killed then). */
sl_err mc_node_stop(struct mc_node *node, struct sl_error *why);

/* ---- node_health.c ---- */
/* Whether the node of these paths serves: its registrar and one of its disks, if it has any. why
 * arrives zeroed (or NULL) and says what is missing, also when the node serves nevertheless. Any
 * thread. */
bool mc_node_ready(const struct sl_paths *paths, uint32_t disk_count, struct sl_error *why);

#endif
