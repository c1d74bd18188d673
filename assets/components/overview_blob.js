// Pictures and measures of the overview; shows nothing.
export default function ({ data }) {
  const { name, digest, bytes } = labelled(data);
  keep(name, digest, unpackOverview(bytes));
}
