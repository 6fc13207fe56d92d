/* tests/bench/policy/picture.c - hits by memory, a line for each policy. */
#include "tests/bench/policy/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define WIDTH  760.0
#define HEIGHT 440.0
#define LEFT   60.0
#define RIGHT  150.0
#define TOP    40.0
#define BOTTOM 50.0

static const char *const colours[] = {"#888888", "#c0392b", "#2e86c1", "#27ae60", "#8e44ad"};

static double place_x(const struct model_picture *picture, uint32_t size)
{
    double first = log((double)picture->sizes[0]);
    double last = log((double)picture->sizes[picture->size_count - 1]);
    double share = last > first ? (log((double)picture->sizes[size]) - first) / (last - first) : 0;
    return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static double place_y(double share, double top_share)
{
    return HEIGHT - BOTTOM - share / top_share * (HEIGHT - TOP - BOTTOM);
}

static double top_share(const struct model_picture *picture)
{
    double top = 0.05;
    for (uint32_t i = 0; i < picture->name_count * picture->size_count; i++) {
        top = fmax(top, picture->shares[i]);
    }
    return ceil(top * 20) / 20;
}

static void axes_print(FILE *file, const struct model_picture *picture, double top)
{
    for (int tick = 0; tick <= 5; tick++) {
        double share = top * tick / 5;
        (void)fprintf(file,
                      "<line x1='%.0f' x2='%.0f' y1='%.1f' y2='%.1f' stroke='#ddd'/>"
                      "<text x='%.0f' y='%.1f' text-anchor='end'>%.0f %%</text>\n",
                      LEFT, WIDTH - RIGHT, place_y(share, top), place_y(share, top), LEFT - 6,
                      place_y(share, top) + 4, share * 100);
    }
    for (uint32_t i = 0; i < picture->size_count; i++) {
        (void)fprintf(file, "<text x='%.1f' y='%.0f' text-anchor='middle'>%" PRIu64 "</text>\n",
                      place_x(picture, i), HEIGHT - BOTTOM + 18, picture->sizes[i]);
    }
    (void)fprintf(file, "<text x='%.0f' y='%.0f' text-anchor='middle'>blocks of memory</text>\n",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

sl_err model_picture_write(const char *path, const struct model_picture *picture,
                           struct sl_error *why)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return sl_fail_os(why, errno, "open '%s'", path);
    }
    double top = top_share(picture);
    (void)fprintf(file,
                  "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %.0f %.0f' "
                  "font-family='sans-serif' font-size='12'>\n"
                  "<rect width='100%%' height='100%%' fill='white'/>\n"
                  "<text x='%.0f' y='20' font-size='15'>%s</text>\n",
                  WIDTH, HEIGHT, LEFT, picture->title);
    axes_print(file, picture, top);
    for (uint32_t name = 0; name < picture->name_count; name++) {
        const double *shares = &picture->shares[(size_t)name * picture->size_count];
        const char *colour = colours[name % SL_COUNT(colours)];
        (void)fprintf(file, "<polyline fill='none' stroke-width='2' stroke='%s' points='", colour);
        for (uint32_t i = 0; i < picture->size_count; i++) {
            (void)fprintf(file, "%.1f,%.1f ", place_x(picture, i), place_y(shares[i], top));
        }
        (void)fprintf(file, "'/>\n<text x='%.0f' y='%.0f' fill='%s'>%s</text>\n",
                      WIDTH - RIGHT + 14, TOP + 20 + 20 * name, colour, picture->names[name]);
    }
    (void)fprintf(file, "</svg>\n");
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    return failed ? sl_fail_os(why, errno, "write '%s'", path) : SL_OK;
}
