/** The components that a model may answer with. */

import { s } from "@hashbrownai/core";
import { exposeComponent, exposeMarkdown } from "@hashbrownai/react";

interface PlaceProps {
  name: string;
  kind: string;
  description: string;
}

function Place({ name, kind, description }: PlaceProps) {
  return (
    <article className="place">
      <span>{kind}</span>
      <h2>{name}</h2>
      <p>{description}</p>
    </article>
  );
}

export const components = [
  exposeMarkdown({ description: "Text, for everything that is not a place" }),
  exposeComponent(Place, {
    name: "Place",
    description: "A card with one place worth a visit",
    props: {
      name: s.streaming.string("The name of the place"),
      kind: s.string("One word, such as museum, park or food"),
      description: s.streaming.string("One or two sentences"),
    },
  }),
];
