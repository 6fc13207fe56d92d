/* client/tools/ctl/metrics.c - sluicectl metrics: all metrics of a node, for monitoring. */
#include "client/tools/ctl/commands.h"
#include "client/tools/ctl/status_ready.h"
#include "client/tools/metrics/scrape.h"

#include <stdlib.h>
#include <string.h>

static void family_json(void *context, const struct metric_fact *first)
{
    (void)json_array_append_new(context,
                                json_pack("{s:s, s:s, s:s, s:[]}", "name", first->family, "type",
                                          first->type, "help", first->help, "samples"));
}

static void sample_json(void *context, const struct metric_fact *fact,
                        const struct scrape_sample *sample)
{
    char name[128];
    json_t *labels = json_object();
    for (uint32_t i = 0; i < sample->label_count; i++) {
        (void)json_object_set_new(labels, sample->labels[i].name,
                                  json_string(sample->labels[i].value));
    }
    (void)snprintf(name, sizeof name, "%s%s", fact->family, sample->suffix);
    json_t *value = strchr(sample->value, '.') != NULL
                        ? json_real(strtod(sample->value, NULL))
                        : ctl_json_u64(strtoull(sample->value, NULL, 10));
    const json_t *family = json_array_get(context, json_array_size(context) - 1);
    (void)json_array_append_new(
        json_object_get(family, "samples"),
        json_pack("{s:s, s:o, s:o}", "name", name, "labels", labels, "value", value));
}

sl_err metrics_families(const char *shm_dir, json_t **out, struct sl_error *why)
{
    json_t *families = json_array();
    const struct scrape_sink sink = {
        .family = family_json, .sample = sample_json, .context = families};
    sl_err err = scrape_node(shm_dir, &sink, why);
    if (err == SL_OK) {
        *out = families;
    } else {
        json_decref(families);
    }
    return err;
}

static int metrics_command(struct ctl *ctl, int argc, char **argv)
{
    int code;
    struct sl_error why = {0};
    json_t *families = NULL;
    if (!ctl_parse(ctl, argc, argv, NULL, 0, &code)) {
        return code;
    }
    sl_err err = ctl->json ? metrics_families(ctl->paths.shm_dir, &families, &why)
                           : scrape_text(ctl->paths.shm_dir, stdout, &why);
    if (err == SL_ERR_UNREACHABLE) {
        (void)ctl_no_pages(ctl, &why);
    }
    if (err != SL_OK) {
        return ctl_failed(ctl, &why);
    }
    if (ctl->json) {
        ctl_print_json(json_pack("{s:o}", "families", families));
    }
    return CTL_SUCCESS;
}

/* clang-format off */
const struct ctl_command ctl_metrics = {
    .name = "metrics",
    .summary = "print all counters for monitoring",
    .help = "metrics\n"
            "\n"
            "Prints all metrics of the node's actors and its clients in Prometheus' text format, with a sentence about each. Reads only\n"
            "shared memory, so it works while actors are stopped. client/tools/metrics/README.md has the table of all metrics.\n"
            "\n"
            "example: sluicectl metrics | promtool check metrics\n"
            CTL_HELP_COMMON,
    .run = metrics_command,
};
/* clang-format on */
