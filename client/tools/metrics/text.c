/* client/tools/metrics/text.c - metrics in Prometheus' text format. */
#include "client/tools/metrics/scrape.h"

static void family_print(void *context, const struct metric_fact *first)
{
    (void)fprintf(context, "# HELP %s %s\n# TYPE %s %s\n", first->family, first->help,
                  first->family, first->type);
}

static void label_print(FILE *out, const struct scrape_label *label)
{
    (void)fprintf(out, "%s=\"", label->name);
    for (const char *at = label->value; *at != '\0'; at++) {
        if (*at == '\\' || *at == '"' || *at == '\n') {
            (void)fputc('\\', out);
        }
        (void)fputc(*at == '\n' ? 'n' : *at, out);
    }
    (void)fputc('"', out);
}

static void sample_print(void *context, const struct metric_fact *fact,
                         const struct scrape_sample *sample)
{
    FILE *out = context;
    (void)fprintf(out, "%s%s", fact->family, sample->suffix);
    for (uint32_t i = 0; i < sample->label_count; i++) {
        (void)fputc(i == 0 ? '{' : ',', out);
        label_print(out, &sample->labels[i]);
    }
    (void)fprintf(out, "%s %s\n", sample->label_count > 0 ? "}" : "", sample->value);
}

sl_err scrape_text(const char *shm_dir, FILE *out, struct sl_error *why)
{
    const struct scrape_sink sink = {
        .family = family_print, .sample = sample_print, .context = out};
    return scrape_node(shm_dir, &sink, why);
}
