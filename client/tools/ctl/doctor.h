/* client/tools/ctl/doctor.h - facts for checks.py, which `doctor`, `config --check` and so each
 * start judge by. */
#ifndef SL_CLIENT_CTL_DOCTOR_H
#define SL_CLIENT_CTL_DOCTOR_H

#include "client/tools/command/command.h"

/* The settings, what a node of them needs, and what process pid (0: this one) may have. New
 * reference. */
json_t *ctl_facts(const struct ctl *ctl, const struct sl_config *config, uint32_t pid);
/* Whether a transporter would take the settings of the directory. link: NULL, or what keeps its
 * server from answering, which is asked then; "" where it answers. */
sl_err ctl_directory_check(const struct sl_config *config, struct sl_error *link,
                           struct sl_error *why);
/* config.c: each setting as number, boolean or text, without passwords. New reference. */
json_t *ctl_settings_json(const struct sl_config *config);
/* config.c: sets `memory`, where nobody did, to what there is room for. True: that is less than its
 * standard. */
bool ctl_memory_fit(const struct ctl *ctl);
/* The next directory above that exists; false: none. */
bool ctl_parent(const char *path, char out[1100]);

#endif
