/* client/ctl/doctor.h - what the checks of `sluicectl doctor` share. */
#ifndef SL_CLIENT_CTL_DOCTOR_H
#define SL_CLIENT_CTL_DOCTOR_H

#include "client/command/command.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor {
    const struct ctl *ctl;
    const struct sl_config *config; /* of the node that runs; else what was asked */
    struct sl_paths paths;
    struct sl_config *given; /* owned: what the node that runs was given; NULL: none, or unknown */
    bool as_is;              /* nothing but what the node that runs was given is looked at */
    bool running;            /* this instance's registrar lives: what it uses is its own */
    json_t *lines;
    const char *sysfs; /* where NICs are looked for */
    uint32_t count[3]; /* by level */
};

/* One line: what was looked at, what was found, and how to mend it ("": nothing to mend). */
void doctor_say(struct doctor *doctor, enum doctor_level level, const char *check, const char *mend,
                const char *format, ...) SL_PRINTF(5, 6);

/* doctor_net.c */
void doctor_verbs(struct doctor *doctor);
void doctor_ports(struct doctor *doctor);
void doctor_metrics(struct doctor *doctor);
/* A setting that says where something listens: whether the address can be had, and who can read there. */
struct doctor_listener {
    const char *check, *setting;
    const char *mend_open, *reads; /* of one that others reach, too */
    bool guarded;                  /* by a token */
};
void doctor_address(struct doctor *doctor, const struct doctor_listener *listener,
                    const char *text);
/* helpers.c */
void doctor_events(struct doctor *doctor);
bool doctor_program_is_there(const char *name);
void doctor_directory(struct doctor *doctor);
/* doctor_disk.c */
void doctor_node(struct doctor *doctor); /* finds the settings of the node that runs: first */
void doctor_disk(struct doctor *doctor);
/* The next directory above that exists; false: none. */
bool doctor_parent(const char *path, char out[1100]);
uint64_t doctor_free_bytes(const char *path);
/* doctor_logout.c */
void doctor_logout(struct doctor *doctor);
/* Whether systemd-logind, by its files below root (""), removes the user's shared memory when the last
 * session of his ends. */
bool ctl_logout_removes(const char *root, const char *user, uint32_t uid);
/* Whether a node of these settings could listen where they say; running: it may do so already. Errors:
 * SL_ERR_CONFIG, SL_ERR_EXISTS, SL_ERR_OS and kin. */
sl_err ctl_listen_check(const struct sl_config *config, bool running, struct sl_error *why);
/* config.c: sets `memory`, where nobody did, to what there is room for. True: that is less than its
 * standard. */
bool ctl_memory_fit(const struct ctl *ctl);
/* doctor_cluster.c */
void doctor_cluster(struct doctor *doctor);

#endif
