/* client/ctl/contributions.c - sluicectl contributions: who lends how much memory to the node. */
#include "client/ctl/commands.h"

#include <string.h>

static json_t *contributions_json(const struct sl_contribution_info *infos, uint32_t count)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_contribution_info *info = &infos[i];
        (void)json_array_append_new(
            rows,
            json_pack("{s:o, s:i, s:o, s:o, s:o, s:b, s:s, s:i}", "name", ctl_json_text(info->name),
                      "number", (int)info->number, "length_bytes", ctl_json_u64(info->length_bytes),
                      "used_bytes", ctl_json_u64(info->used_bytes), "values",
                      ctl_json_u64(info->value_count), "lasting", info->process[0] == '\0',
                      "process", info->process, "pid", (int)info->pid));
    }
    return json_pack("{s:o}", "contributions", rows);
}

static int contributions_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    uint32_t count = 0;
    struct sl_error why = {0};
    struct sl_contribution_info infos[SL_CONTRIBUTIONS_MAX];
    struct sl_client *client = NULL;
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    sl_err err = ctl_open(ctl, false, &client, &why);
    if (err == SL_OK) {
        err = sl_contributions(client, infos, &count, 0, &why);
    }
    sl_client_close(&client);
    return err == SL_OK ? ctl_answer(ctl, contributions_json(infos, count)) : ctl_failed(ctl, &why);
}

/* clang-format off */
const struct ctl_command ctl_contributions = {
    .name = "contributions",
    .summary = "what processes contribute to the node's memory",
    .help = "contributions\n"
            "\n"
            "Each: its number, what it adds, what of it values are charged, and whose it is: it ends\n"
            "with that process. Others than nodes with the setting contributions have none."
            CTL_HELP_COMMON,
    .run = contributions_command,
};
/* clang-format on */
