/* client/tools/ctl/doctor.h - facts that checks.py judges, for `doctor` and for `config --check`,
 * which each start runs. */
#ifndef SL_CLIENT_CTL_DOCTOR_H
#define SL_CLIENT_CTL_DOCTOR_H

#include "client/tools/command/command.h"

/* The settings, the needs of a node with them, and the limits of process pid (0: this one). New
 * reference. */
json_t *ctl_facts(const struct ctl *ctl, const struct sl_config *config, uint32_t pid);
/* Checks the directory's settings as a transporter does. link: NULL, or receives why the
 * directory's server does not answer a request ("": it answers). */
sl_err ctl_directory_check(const struct sl_config *config, struct sl_error *link,
                           struct sl_error *why);
/* config.c: each setting as number, boolean or text, without passwords. New reference. */
json_t *ctl_settings_json(const struct sl_config *config);
/* config.c: if no source sets `memory`, sets it to the size that the node has from its last start,
 * else to the size that fits into free memory. True: this differs from the default. */
bool ctl_memory_fit(const struct ctl *ctl);
/* The path or the nearest existing directory above it; false: there is none. */
bool ctl_parent(const char *path, char out[1100]);

#endif
